"""Replies that are a number or an enum, as NServiceBus.Callbacks sends them: a control message without a body, with the
number in a header.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from rowpost.errors import InvalidMessage, MessageNotDeserialized, UnexpectedReply
from rowpost.wire.headers import CONTROL_MESSAGE, RETURN_CODE

__all__ = ["as_expected", "as_return_code", "read_return_code"]

#: the numbers of .NET's long, the largest type that NServiceBus.Callbacks reads
_RANGE = range(-(2**63), 2**63)
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def as_return_code(reply: Any, headers: Mapping[str, str | None] | None) -> tuple[Any, Mapping[str, str | None] | None]:
    """Return a reply and its headers as they are sent: a number or an enum as empty bytes and headers, any other reply
    as it is.

    Raises:
        InvalidMessage: the value is a boolean, an enum whose value is no whole number, or needs more than 64 bits.

    >>> as_return_code(7, None)
    (b'', {'NServiceBus.ReturnMessage.ErrorCode': '7', 'NServiceBus.ControlMessage': 'True'})
    """
    if not isinstance(reply, int | Enum):
        return reply, headers
    number = reply.value if isinstance(reply, Enum) else reply
    if not isinstance(number, int) or isinstance(number, bool) or number not in _RANGE:
        raise InvalidMessage(
            f"{reply!r:.100} cannot be a reply: it is sent as a whole number, from -2^63 to 2^63 - 1. Reply with such "
            "a number, with an enum whose values are such numbers, or with a message."
        )
    return b"", {**(headers or {}), RETURN_CODE: str(int(number)), CONTROL_MESSAGE: "True"}


def as_expected(code: int, expected: type | None) -> Any:
    """Return the number of a reply, or its member of an expected enum. Raises UnexpectedReply: it is none of these."""
    if expected is None or issubclass(int, expected):
        return code
    if issubclass(expected, Enum) and code in (each.value for each in expected):
        return expected(code)
    raise UnexpectedReply(f"The request expects a reply of {expected.__qualname__}, and got the number {code}.")


def read_return_code(headers: Mapping[str, str | None]) -> int | None:
    """Return the number that a reply consists of; None if the reply is a message.

    Raises:
        MessageNotDeserialized: it is a control message without a number.
    """
    if headers.get(CONTROL_MESSAGE) != "True" and RETURN_CODE not in headers:
        return None
    text = (headers.get(RETURN_CODE) or "").strip()
    if not _NUMBER.fullmatch(text):
        raise MessageNotDeserialized(
            f"The reply cannot be read: its header {RETURN_CODE} is no whole number, but {text!r:.100}."
        )
    return int(text)
