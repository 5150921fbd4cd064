"""Messages and their headers, as they stand in a queue's row."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from os import urandom
from time import time_ns
from typing import Any
from uuid import UUID

import msgspec

from rowpost.errors import InvalidDelay, InvalidMessage, MessageCorrupt
from rowpost.wire.headers import CALLBACK_QUEUE, MESSAGE_ID, REPLY_TO_ADDRESS

__all__ = [
    "BrowsedMessage",
    "Headers",
    "Message",
    "MessageRow",
    "OutgoingMessage",
    "decode_headers",
    "encode_headers",
    "format_timestamp",
    "moment_after",
    "new_id",
    "parse_timestamp",
    "storable",
    "time_until",
    "timestamp_now",
]

Headers = Mapping[str, str | None]
#: a row of a receiving procedure: id, row version, whether it has expired, headers, body
MessageRow = tuple[UUID, int, bool, str, bytes | None]

_encode_quickly = msgspec.json.Encoder().encode
_decode_quickly = msgspec.json.Decoder(dict[str, str | None]).decode
_PLAIN = {str, type(None)}
#: the digit of a random UUID that names its variant, by a random digit
_VARIANTS = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
_TIMESTAMP = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}):([0-9]{6}) Z")


def encode_headers(headers: Headers) -> str:
    """One flat JSON object of strings and nulls; no headers at all are the empty string.

    Raises:
        InvalidMessage: a name or a value is not text (numbers are written as text by the caller, who knows how).
    """
    if not headers:
        return ""
    if not {*map(type, headers), *map(type, headers.values())} <= _PLAIN:  # a subclass of text is text too
        for name, value in headers.items():
            if not isinstance(name, str) or not (value is None or isinstance(value, str)):
                raise InvalidMessage(f"The header {name!r} is {value!r}: names must be text, values text or None.")
    try:
        text = _encode_quickly(headers if type(headers) is dict else dict(headers)).decode()
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"The headers hold half of a surrogate pair, which no database stores: {error}") from error
    # The encoder writes NUL as the escape backslash-u-0000. The same six characters can also be harmless text.
    if "\\u0000" in text and any("\0" in name or "\0" in (value or "") for name, value in headers.items()):
        raise InvalidMessage("The headers hold the character NUL, which PostgreSQL cannot store. Leave it out.")
    return text


def storable(headers: Headers) -> dict[str, str | None]:
    """Copy headers and replace the characters that no database stores.

    NUL becomes U+FFFD, and half of a surrogate pair becomes a question mark. A received message can have both, as
    escapes of JSON. Copies of such a message must be storable, or a failing message could never leave its queue.

    >>> storable({"Shop.Note": "a\\0b", "Shop.Null": None})
    {'Shop.Note': 'a\ufffdb', 'Shop.Null': None}
    """
    return {_storable(name): None if value is None else _storable(value) for name, value in headers.items()}


def _storable(text: str) -> str:
    if text.isascii() and "\0" not in text:  # the usual case, on the way of every audited message
        return text
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")


def decode_headers(text: str) -> dict[str, str | None]:
    """Read the Headers column: '' is no headers, else a JSON object of strings and nulls.

    Raises:
        MessageCorrupt: not JSON, not an object, or a value that is neither text nor null.
    """
    if not text:
        return {}
    try:
        return _decode_quickly(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # json knows more, and says better what is wrong
        return _decode_patiently(text)


def _decode_patiently(text: str) -> dict[str, str | None]:
    try:
        headers = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MessageCorrupt(f"The headers are not JSON: {error}. They begin with {text[:60]!r}.") from error
    if not isinstance(headers, dict):
        raise MessageCorrupt(f"The headers are a JSON {type(headers).__name__}, not an object of strings.")
    for name, value in headers.items():
        if not (value is None or isinstance(value, str)):
            raise MessageCorrupt(f"The header {name!r} is {value!r}: only text and null are allowed.")
    return headers


def time_until(moment: datetime) -> timedelta:
    """Return the time from now to a moment. Raises InvalidDelay if it has no time zone."""
    if moment.tzinfo is None:
        raise InvalidDelay(
            f"The moment {moment.isoformat()} has no time zone. Use a time with one, such as datetime.now(UTC) + "
            "timedelta(hours=1)."
        )
    return moment - datetime.now(UTC)


def moment_after(delay: timedelta) -> datetime:
    """Return the moment after a delay from now, in UTC. Raises InvalidDelay if it is beyond the calendar."""
    try:
        return datetime.now(UTC) + delay
    except OverflowError as error:
        raise InvalidDelay(
            f"The delay of {delay} leads beyond the calendar. Use a delay of at most 100 years."
        ) from error


def format_timestamp(moment: datetime) -> str:
    """Return the wire's time: UTC, a colon before six digits of microseconds, ` Z`.

    >>> format_timestamp(datetime(2026, 4, 29, 21, 56, 55, 590807, UTC))
    '2026-04-29 21:56:55:590807 Z'
    """
    at = moment.astimezone(UTC)
    # with %, in two thirds of the time of format specifiers
    parts = at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond
    return "%04d-%02d-%02d %02d:%02d:%02d:%06d Z" % parts  # noqa: UP031


def parse_timestamp(text: str) -> datetime:
    """Read the wire's time, strictly.

    Raises:
        ValueError: any other form, ISO 8601 included.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not of the form yyyy-MM-dd HH:mm:ss:ffffff Z")
    return datetime.fromisoformat(f"{match[1]}.{match[2]}+00:00")


def timestamp_now() -> str:
    """Return the present time as `format_timestamp` does, in half of its time."""
    seconds, microseconds = divmod(time_ns() // 1000, 1_000_000)
    return f"{_second(seconds)}:{microseconds:06d} Z"


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def new_id() -> str:
    """Return a random id as text, as str(uuid4()) gives it, in a third of its time."""
    text = urandom(16).hex()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{_VARIANTS[text[16]]}{text[17:20]}-{text[20:]}"


class _Stored:
    """What a received and a browsed message share."""

    __slots__ = ()
    id: UUID
    raw_headers: str
    headers: dict[str, str | None]
    message_id: str

    def __getattr__(self, name: str) -> Any:
        """Decode the headers when they or the message id are first read: until then, these slots are empty."""
        if name not in {"headers", "message_id"}:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        headers = decode_headers(self.raw_headers)
        object.__setattr__(self, "headers", headers)
        object.__setattr__(self, "message_id", headers.get(MESSAGE_ID) or str(self.id))
        return getattr(self, name)

    @property
    def reply_to(self) -> str | None:
        """The address that wants the reply, if any."""
        return self.headers.get(CALLBACK_QUEUE) or self.headers.get(REPLY_TO_ADDRESS) or None


@dataclass(frozen=True, slots=True)
class Message(_Stored):
    """A received message.

    Attributes:
        id: the row's id, new at every hop; the message's own id is `message_id`.
        row_version: its place in the queue.
        expired: by the server's clock, when it was received.
        raw_headers: the Headers column, verbatim.
        body: the bytes; a NULL body is empty bytes.
        headers: the decoded headers. Reading them raises MessageCorrupt if they cannot be decoded.
        message_id: the header NServiceBus.MessageId as it arrived; the row's id where a sender left it out. Raises as
            `headers`.
    """

    id: UUID
    row_version: int
    expired: bool
    raw_headers: str
    body: bytes
    headers: dict[str, str | None] = field(init=False, repr=False, compare=False)
    message_id: str = field(init=False, repr=False, compare=False)

    @classmethod
    def of_row(cls, row: Sequence[Any]) -> "Message":
        """Return a row of a procedure that receives as a message: id, row version, whether it has expired, headers,
        body.
        """
        return cls(row[0], row[1], bool(row[2]), row[3], row[4] or b"")


@dataclass(frozen=True, slots=True)
class BrowsedMessage(_Stored):
    """A message that was read but not received.

    `body` may be cut, `body_bytes` is the whole length; `expires` is in UTC. `headers` and `message_id` as in
    `Message`. `withheld`: the login may not read bodies.
    """

    id: UUID
    row_version: int
    expired: bool
    expires: datetime | None
    raw_headers: str
    body: bytes
    body_bytes: int
    withheld: bool = False
    headers: dict[str, str | None] = field(init=False, repr=False, compare=False)
    message_id: str = field(init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to send. Headers may be given as a mapping, or as text that is stored verbatim."""

    body: bytes | None = b""
    headers: Headers | str = field(default_factory=dict)
    id: UUID | None = None
    time_to_be_received: timedelta | None = None

    @property
    def raw_headers(self) -> str:
        """The Headers column."""
        return self.headers if isinstance(self.headers, str) else encode_headers(self.headers)

    @property
    def time_to_be_received_ms(self) -> int | None:
        """Milliseconds, rounded up so that a short time never becomes none."""
        if self.time_to_be_received is None:
            return None
        return -(self.time_to_be_received // -timedelta(milliseconds=1))
