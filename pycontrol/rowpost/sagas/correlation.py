"""Correlation values: their types, the headers that contain them, and their text form for the procedures."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from rowpost.errors import InvalidCorrelation
from rowpost.settings.saga import CorrelationType

__all__ = ["KINDS", "LIMIT", "Header", "correlation_text"]

#: the types that a correlation property may have, and the names of the column's kinds
KINDS: dict[type, CorrelationType] = {str: "string", int: "integer", UUID: "uuid", datetime: "timestamp"}
#: maximum number of characters, as in NServiceBus.Persistence.Sql
LIMIT = 200
_BIGINT = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a message with the correlation value, for `correlate={PlaceOrder: Header("Shop.OrderId")}`.

    Its text is converted to the type of the state's field.
    """

    name: str

    def convert(self, text: str | None, kind: str, of: str) -> Any:
        """Return the value of a text. `kind` and `of` as for `correlation_text`. Raises InvalidCorrelation."""
        try:
            return text and msgspec.convert(text, next(cls for cls in KINDS if KINDS[cls] == kind), strict=False)
        except msgspec.ValidationError as error:
            raise InvalidCorrelation(f"{of} is {text!r:.60}, which cannot be converted to {kind}.") from error


def correlation_text(value: Any, kind: str, of: str) -> str:
    """Return the value as text.

    Args:
        kind: the kind of the column, a value of KINDS.
        of: names the value in errors.

    >>> correlation_text(42, "integer", "PlaceOrder.order_id")
    '42'

    Raises:
        InvalidCorrelation: the value is missing, has another type, or cannot be stored.
    """
    if value is None or value == "":
        raise InvalidCorrelation(
            f"{of} is {'missing' if value is None else 'empty'}, so that no saga can be found by it."
        )
    if KINDS.get(type(value)) != kind:
        raise InvalidCorrelation(
            f"{of} is {value!r:.60}, of type {type(value).__name__}, but the saga is found by a value of type {kind}."
        )
    problem = _problem(value)
    if problem:
        raise InvalidCorrelation(f"{of} {problem}.")
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _problem(value: Any) -> str | None:
    if isinstance(value, str):
        if len(value) > LIMIT:
            return f"has {len(value)} characters; the maximum is {LIMIT}. It starts with {value[:40]!r}"
        if "\0" in value or not _is_encodable(value):
            return f"contains a character that the database cannot store: {value[:40]!r}"
    if isinstance(value, int) and value not in _BIGINT:
        return f"is {value}, which needs more than 64 bits"
    if isinstance(value, datetime) and value.tzinfo is None:
        return "has no time zone, so that its time is ambiguous"
    return None


def _is_encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
