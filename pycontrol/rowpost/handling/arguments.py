"""Check the arguments of send, publish, reply and the like where they are passed, so that a mistake is not found at the
commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from rowpost.errors import InvalidDelay, InvalidMessage
from rowpost.wire.headers import CONVERSATION_ID, ENCLOSED_MESSAGE_TYPES
from rowpost.wire.message import encode_headers, time_until
from rowpost.wire.message_types import named_types, time_to_be_received_of, type_name

__all__ = [
    "check_conversation",
    "check_delay",
    "check_flag",
    "check_headers",
    "check_lifetime",
    "check_named",
    "check_text",
    "check_time",
]

#: would be sent as JSON
_BUFFERS = frozenset({bytearray, memoryview})


def check_text(name: str, value: Any, *, may_be_empty: bool = False) -> str:
    """Return the text of an argument that must be text, and may not be empty by default.

    A `StrEnum` is text; it becomes a plain `str`.

    Raises:
        InvalidMessage: it is something else, or empty.
    """
    if not isinstance(value, str):
        instead = (
            f" Pass {name}={value}.value."
            if isinstance(value, Enum) and isinstance(value.value, str)
            else " Pass a str."
        )
        raise InvalidMessage(f"The argument {name} is {_shown(value)}, which is not text.{instead}")
    if not value and not may_be_empty:
        raise InvalidMessage(f"The argument {name} is empty. Leave it out if you mean the default.")
    return value if type(value) is str else str.__str__(value)


def check_headers(headers: Any) -> dict[str, str | None]:
    """Return a copy of headers.

    Raises:
        InvalidMessage: they are no mapping of text to text or None, or hold a character that no database stores.
    """
    if not isinstance(headers, Mapping):
        raise InvalidMessage(f"The argument headers is {_shown(headers)}. Pass a mapping of text to text or None.")
    copied = {_plain(name): _plain(value) for name, value in headers.items()}
    encode_headers(copied)
    return copied


def check_delay(name: str, value: Any) -> timedelta:
    """Return a delay from now. Raises InvalidDelay if it is neither a timedelta nor a datetime with a time zone."""
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, datetime):
        raise InvalidDelay(f"The argument {name} is {_shown(value)}. Pass a timedelta, or a datetime with a time zone.")
    return time_until(value)


def check_lifetime(cls: type, given: timedelta | None) -> None:
    """Check a delayed message. Raises InvalidMessage if a time to be received is given, or its class has one."""
    time = time_to_be_received_of(cls) if given is None else given
    if time is not None:
        raise InvalidMessage(
            f"A {type_name(cls)} cannot have both delay and time_to_be_received={time!r}"
            f"{' of its @message_type' if given is None else ''}, because it is undefined from when the time would "
            "count. Leave one of them out."
        )


def check_conversation(given: str | None, current: str | None) -> None:
    """Check a header ConversationId that a caller gives. Raises InvalidMessage if it is not that of the message."""
    if given != current:
        raise InvalidMessage(
            f"The header {CONVERSATION_ID} cannot be {given!r:.100}, because the message belongs to the conversation "
            f"{current!r:.100}. To start another conversation, pass new_conversation={given!r:.100} to send or publish "
            "instead of the header."
        )


def check_time(name: str, value: Any) -> None:
    """Check a duration. Raises InvalidMessage if it is no timedelta."""
    if not isinstance(value, timedelta):
        raise InvalidMessage(f"The argument {name} is {_shown(value)}. Pass a timedelta, such as timedelta(minutes=5).")


def check_flag(name: str, value: Any) -> None:
    """Check an argument that is True or False. Raises InvalidMessage if it is neither."""
    if not isinstance(value, bool):
        raise InvalidMessage(f"The argument {name} is {_shown(value)}. Pass True or False.")


def check_named(message: Any, headers: Mapping[str, str | None]) -> Any:
    """Return a message whose class has a name, or whose headers have one.

    Raises InvalidMessage, which says what is missing.
    """
    if headers[ENCLOSED_MESSAGE_TYPES] == "" or type(message) in _BUFFERS:
        named_types(type(message))
    return message


def _plain(value: Any) -> Any:
    return str.__str__(value) if isinstance(value, str) and type(value) is not str else value


def _shown(value: Any) -> str:
    """Return the type of a value and the start of it. A class whose __repr__ fails has the type only."""
    try:
        return f"of the type {type(value).__name__}: {value!r:.60}"
    except Exception:  # noqa: BLE001 a user's class
        return f"of the type {type(value).__name__}"
