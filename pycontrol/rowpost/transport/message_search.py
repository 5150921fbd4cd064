"""Find messages in queues by an id in their headers, among a bounded number of messages, the newest first.

found = search(database, ["Sales", "error", "audit"], message_id)
for each in found.messages:
    print(each.queue, each.message.headers)
if found.unfinished:
    print(f"older messages of {', '.join(found.unfinished)} were not looked through")
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from rowpost.database.connection import Connection
from rowpost.errors import InvalidCount, MessageCorrupt, PermissionDenied, QueueNotFound
from rowpost.transport.queue import browsed_message
from rowpost.wire.message import BrowsedMessage, Headers
from rowpost.wire.outgoing import Call

__all__ = ["LOOK_THROUGH", "FoundMessage", "Search", "row_id", "search"]

#: messages of each queue that a search looks through
LOOK_THROUGH = 20_000
#: what one call looks through, and returns, at most
_CALL_COUNT, _CALL_FOUND = 100_000, 1000
_TEXT = 200
#: characters that every writer of JSON writes as they are
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@(){} -]+")


_Rows = Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message that has the id. `headers` are empty if they cannot be read; then the row has the id."""

    queue: str
    message: BrowsedMessage
    headers: Headers


@dataclass(frozen=True, slots=True)
class Search:
    """What a search found.

    Attributes:
        messages: by queue, and in each the newest first.
        unfinished: queues with older messages that were not looked through, and the row versions below which these are.
        unseen: queues that the login may not search, or that are gone.
    """

    messages: tuple[FoundMessage, ...]
    unfinished: Mapping[str, int]
    unseen: tuple[str, ...]


def search(
    database: Connection,
    queues: Iterable[str],
    wanted: str,
    *,
    look_through: int | None = LOOK_THROUGH,
) -> Search:
    """Return the messages that have an id as the value of a header, or as the id of their row, without their bodies.

    Args:
        queues: names of own queues.
        wanted: the id of a message, of a row, or of a conversation.
        look_through: messages of each queue at most, 1 or more; None: all.

    Raises:
        InvalidCount: the id has no character that can be searched for.
    """
    text = max(_PLAIN.findall(wanted), key=len, default="")[:_TEXT]
    if not text.strip():
        raise InvalidCount(
            f"Nothing can be searched for {wanted[:60]!r}. Use the id of a message, of a row, or of a conversation."
        )
    found: list[FoundMessage] = []
    unfinished: dict[str, int] = {}
    unseen: list[str] = []
    call = partial(_call, text, row_id(wanted))
    names = list(queues)
    for queue, rows in zip(names, _first_rows(database, names, call, look_through), strict=True):
        if rows is None:
            unseen.append(queue)
            continue
        messages, looked_to = _look_on(database, partial(call, queue), rows, look_through)
        found += [
            FoundMessage(queue, each, headers) for each in messages if (headers := _matching(each, wanted)) is not None
        ]
        if looked_to is not None:
            unfinished[queue] = looked_to
    return Search(tuple(found), unfinished, tuple(unseen))


def row_id(text: str) -> UUID | None:
    """Return the id of a row that a text is; None if it is none."""
    try:
        return UUID(text)
    except ValueError:
        return None


def _call(text: str, row: UUID | None, queue: str, count: int, below: int | None) -> Call:
    return Call("search_messages", queue, {"text": text, "count": count, "id": row, "below_row_version": below})


def _first_rows(
    database: Connection, queues: list[str], call: Callable[..., Call], look_through: int | None
) -> Iterator[_Rows | None]:
    """Yield the rows of the first call for each queue, in one round trip; None for a queue that cannot be searched."""
    calls = [call(queue, _count(look_through), None) for queue in queues]
    try:
        yield from database.call_all(calls)
    except (PermissionDenied, QueueNotFound):
        yield from (_rows_if_allowed(database, each) for each in calls)  # which one is refused?


def _rows_if_allowed(database: Connection, call: Call) -> _Rows | None:
    try:
        (rows,) = database.call_all([call])
    except (PermissionDenied, QueueNotFound):
        return None
    return rows


def _look_on(
    database: Connection, call: Callable[..., Call], rows: _Rows, left: int | None
) -> tuple[list[BrowsedMessage], int | None]:
    """Return the candidates of one queue, and the row version down to which it was looked through; None if nothing is
    left.

    Args:
        rows: of the first call.
        left: messages to look through, with those of the first call; None: all.
    """
    found: list[BrowsedMessage] = []
    while True:
        messages = [browsed_message(values) for _, *values in rows if values[0] is not None]
        found += messages
        (below, *_), *_ = rows
        if len(messages) == _CALL_FOUND:
            below = messages[-1].row_version
        elif left is not None:
            left -= _count(left)
        if below is None or left == 0:
            return found, below
        (rows,) = database.call_all([call(_count(left), below)])


def _count(left: int | None) -> int:
    return _CALL_COUNT if left is None else min(left, _CALL_COUNT)


def _matching(message: BrowsedMessage, wanted: str) -> Headers | None:
    """Return the headers of a message that has the id; None if it has not."""
    try:
        headers: Headers = message.headers
    except MessageCorrupt:
        headers = {}
    if str(message.id) == wanted.lower() or wanted in headers.values():
        return headers
    return None
