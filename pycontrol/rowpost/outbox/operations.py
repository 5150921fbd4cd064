"""The outbox of an endpoint whose business data lie in another database than its queue: what is declared, what is stored.

    sales = Endpoint("Sales", transaction_mode="receive_only", outbox="business")

A message, what its handler wrote and what it sent commit in the business database, in one local transaction; what was
sent leaves after that. outbox_flow.py walks the way of a message, outbox_care.py looks after what is left behind.
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
from rowpost.errors import DatabaseError, SettingsError
from rowpost.settings.engine import engine_of
from rowpost.settings.secrets import resolve_participants
from rowpost.wire.operation import Operation

__all__ = ["Outbox", "decode_operations", "encode_operations", "named", "open_business"]

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Outbox:
    """Which business database, and how two workers that have one message in hand meet there.

    Optimistic: both handle it, the second to commit is undone. `pessimistic`: the second waits, for 10 s at most, before
    its handler runs. `url` is for programs without an environment's file; else the environment's outbox of that name.
    """

    database: str
    pessimistic: bool = False
    url: str | None = field(default=None, repr=False)

    def find_url(self, known: Mapping[str, str]) -> str:
        """Where the business database is; `${VARIABLE}` is replaced from the process environment.

        Raises:
            SettingsError: nobody says where.
        """
        url = self.url or known.get(self.database)
        if url is None:
            raise SettingsError(
                f"No outbox is named {self.database!r}; known: {', '.join(sorted(known)) or 'none'}. Give its url below "
                f"`outbox` of the environment, or: Outbox({self.database!r}, url=…)."
            )
        return resolve_participants({self.database: url})[self.database]


def open_business(url: str, application_name: str) -> Connection:
    """A connection to a business database, which may be of another engine than the queue's.

    Raises:
        DatabaseUnavailable, LoginRefused.
    """
    return connect_url(engine_of(url), url, application_name)


@contextmanager
def named(business: str) -> Iterator[None]:
    """Errors within the block say that they are the business database's."""
    try:
        yield
    except DatabaseError as error:
        raise type(error)(f"business database {business!r}: {error}") from error


def encode_operations(operations: Iterable[Operation]) -> str:
    """Operations as a JSON array that a person can read: a body that is text stands there as text.

    >>> encode_operations([Operation({"NServiceBus.MessageId": "1"}, b"{}", "Billing")])
    '[{"headers":{"NServiceBus.MessageId":"1"},"body":"{}","destination":"Billing"}]'
    """
    return json.dumps([_entry(each) for each in operations], ensure_ascii=False, separators=(",", ":"))


def _entry(operation: Operation) -> dict[str, Any]:
    entry: dict[str, Any] = {"headers": operation.headers}
    try:
        entry["body"] = operation.body.decode()
    except UnicodeDecodeError:
        entry["base64"] = b64encode(operation.body).decode("ascii")
    if operation.destination is not None:
        entry["destination"] = operation.destination
    if operation.topics:
        entry["topics"] = list(operation.topics)
    for name in ("delay", "time_to_be_received"):
        time: timedelta | None = getattr(operation, name)
        if time is not None:
            entry[f"{name}_ms"] = -(time // -_MILLISECOND)
    return entry


def decode_operations(text: str, age_ms: int = 0) -> list[Operation]:
    """The operations again; a delay counts from when the message was handled, `age_ms` ago.

    >>> decode_operations('[{"headers":{},"body":"x","destination":"A","delay_ms":5000}]', 2000)[0].delay.seconds
    3
    """
    return [
        Operation(
            headers=entry["headers"],
            body=b64decode(entry["base64"]) if "base64" in entry else entry["body"].encode(),
            destination=entry.get("destination"),
            topics=tuple(entry.get("topics", ())),
            delay=_time(entry.get("delay_ms"), age_ms),
            time_to_be_received=_time(entry.get("time_to_be_received_ms")),
        )
        for entry in json.loads(text)
    ]


def _time(ms: int | None, age_ms: int = 0) -> timedelta | None:
    return None if ms is None else max(ms - age_ms, min(ms, 0)) * _MILLISECOND
