"""Declare an outbox, and encode the outgoing messages that it stores.

An endpoint needs an outbox if its business data is in another database than its queue:

    sales = Endpoint("Sales", transaction_mode="receive_only", outbox="business")

What a handler wrote, and what it sent, commits in the business database in one local transaction. The messages are sent
after that. `outbox.processing` handles the messages. `outbox.cleanup` sends what a dead worker left behind.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from rowpost.database.connection import Connection, connect_url
from rowpost.errors import DatabaseError, InvalidMessage, SettingsError
from rowpost.settings.engine import engine_of
from rowpost.settings.secrets import resolve_participants
from rowpost.wire.outgoing import AddressedMessage, Call, Outgoing

__all__ = ["Outbox", "decode_outgoing", "encode_outgoing", "named", "open_business"]

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Outbox:
    """Declares the business database of an endpoint, and what happens if two workers handle the same message.

    Attributes:
        database: the business database's name, as under `outbox` of the environment.
        pessimistic: the second worker waits for the first one, at most 10 s, before its handler runs. Otherwise both
            run their handlers, and the second one to commit is rolled back.
        url: the business database's URL, for programs without an environment file.
    """

    database: str
    pessimistic: bool = False
    url: str | None = field(default=None, repr=False)

    def find_url(self, known: Mapping[str, str]) -> str:
        """Return the URL of the business database. `${VARIABLE}` is replaced from the process environment.

        Args:
            known: URLs of the environment's business databases, by name.

        Raises:
            SettingsError: no URL is known.
        """
        url = self.url or known.get(self.database)
        if url is None:
            raise SettingsError(
                f"No outbox is named {self.database!r}; known: {', '.join(sorted(known)) or 'none'}. Give its url "
                f"under `outbox` of the environment, or use Outbox({self.database!r}, url=…)."
            )
        return resolve_participants({self.database: url})[self.database]


def open_business(url: str, application_name: str) -> Connection:
    """Open a connection to a business database. Its engine may differ from the queue's.

    Raises:
        DatabaseUnavailable: the server does not answer.
        LoginRefused: user, password or database are wrong.
    """
    return connect_url(engine_of(url), url, application_name)


@contextmanager
def named(business: str) -> Iterator[None]:
    """Add the business database's name to errors that are raised in the block."""
    try:
        yield
    except DatabaseError as error:
        raise type(error)(f"business database {business!r}: {error}") from error


def encode_outgoing(outgoing: Iterable[Outgoing]) -> str:
    """Return outgoing messages as a readable JSON array.

    A body that is UTF-8 text is stored as text, another one as Base64.

    >>> encode_outgoing([AddressedMessage({"NServiceBus.MessageId": "1"}, b"{}", "Billing")])
    '[{"headers":{"NServiceBus.MessageId":"1"},"body":"{}","destination":"Billing"}]'
    """
    return json.dumps([_entry(each) for each in outgoing], ensure_ascii=False, separators=(",", ":"))


def _entry(addressed: Outgoing) -> dict[str, Any]:
    if isinstance(addressed, Call):  # those of sagas, which are made in the business database
        raise TypeError(f"The outbox cannot store a call of {addressed.procedure}, only messages.")
    entry: dict[str, Any] = {"headers": addressed.headers}
    try:
        entry["body"] = addressed.body.decode()
    except UnicodeDecodeError:
        entry["base64"] = b64encode(addressed.body).decode("ascii")
    if addressed.destination is not None:
        entry["destination"] = addressed.destination
    if addressed.topics:
        entry["topics"] = list(addressed.topics)
    for name in ("delay", "time_to_be_received"):
        time: timedelta | None = getattr(addressed, name)
        if time is not None:
            entry[f"{name}_ms"] = -(time // -_MILLISECOND)
    return entry


def decode_outgoing(text: str, age_ms: int = 0) -> list[AddressedMessage]:
    """Return the outgoing messages of a JSON array.

    Delays count from when the message was handled, `age_ms` milliseconds ago.

    Raises:
        InvalidMessage: the text is not what `encode_outgoing` returns.

    >>> decode_outgoing('[{"headers":{},"body":"x","destination":"A","delay_ms":5000}]', 2000)[0].delay.seconds
    3
    """
    try:
        return [_message(entry, age_ms) for entry in json.loads(text)]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidMessage(
            f"The outgoing messages that are stored in the outbox cannot be read: {type(error).__name__}: {error}"
        ) from error


def _message(entry: dict[str, Any], age_ms: int) -> AddressedMessage:
    return AddressedMessage(
        headers=entry["headers"],
        body=b64decode(entry["base64"]) if "base64" in entry else entry["body"].encode(),
        destination=entry.get("destination"),
        topics=tuple(entry.get("topics", ())),
        delay=_timedelta(entry.get("delay_ms"), age_ms),
        time_to_be_received=_timedelta(entry.get("time_to_be_received_ms")),
    )


def _timedelta(ms: int | None, age_ms: int = 0) -> timedelta | None:
    return None if ms is None else max(ms - age_ms, min(ms, 0)) * _MILLISECOND
