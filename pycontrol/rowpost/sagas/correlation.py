"""Correlation values: their kinds, and their text as the procedures take it."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from rowpost.errors import InvalidCorrelation

__all__ = ["KINDS", "LIMIT", "correlation_text"]

#: a state's correlation property may have one of these types; the words are those of the column's kind
KINDS: dict[type, str] = {str: "string", int: "integer", UUID: "uuid", datetime: "timestamp"}
#: characters (reference J6)
LIMIT = 200
_BIGINT = range(-(2**63), 2**63)


def correlation_text(value: Any, kind: str, of: str) -> str:
    """The value as text; `of` says in words whose it is.

    >>> correlation_text(42, "integer", "PlaceOrder.order_id")
    '42'

    Raises:
        InvalidCorrelation: it is missing, of another type, or cannot be stored.
    """
    if value is None or value == "":
        raise InvalidCorrelation(f"{of} is {'missing' if value is None else 'empty'}: no saga can be found by it.")
    if KINDS.get(type(value)) != kind:
        raise InvalidCorrelation(f"{of} is {value!r:.60}, of type {type(value).__name__}; the saga is found by a {kind}.")
    problem = _problem(value)
    if problem:
        raise InvalidCorrelation(f"{of} {problem}.")
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _problem(value: Any) -> str | None:
    if isinstance(value, str):
        if len(value) > LIMIT:
            return f"has {len(value)} characters; a correlation value has {LIMIT} at most. It begins with {value[:40]!r}"
        if "\0" in value or not _is_encodable(value):
            return f"holds a character that no database stores: {value[:40]!r}"
    if isinstance(value, int) and value not in _BIGINT:
        return f"is {value}: it needs more than 64 bits"
    if isinstance(value, datetime) and value.tzinfo is None:
        return "has no time zone: nobody could say which moment it is"
    return None


def _is_encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
