"""Compute how far a stream may read a queue while other transactions write to it.

`Poll` is one result of the procedure describe_stream. `Watermark` combines successive polls into the watermark: the
highest row version below which no further message can appear. It performs no I/O, so that tests can replay histories.

    watermark = Watermark()
    while watermark.advance(poll_of_the_queue()) < target: ...

A row version is assigned before its transaction commits. The highest visible row version therefore does not show
whether a lower one will still appear. Each poll records the last assigned row version first and the open writers second.
When all writers of a poll have ended, every row version up to the one in that poll has committed or will never appear.

When PostgreSQL prepares a transaction, its identifier changes to `-1/…`. While a prepared transaction exists, its
earlier identifier is unknown, so no earlier poll is used.

This watermark is a row version. It is unrelated to `DataFrame.withWatermark`, which is about event time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

__all__ = ["Poll", "Watermark"]

PREPARED_PREFIX = "-1/"
MAX_POLLS = 1000


@dataclass(frozen=True)
class Poll:
    """One result of describe_stream.

    Attributes:
        last: the last row version that was assigned, read before the writers.
        writers: identifiers of the transactions that are writing to the queue.
        watermark: the watermark that the server reports. It is None while anybody writes.
    """

    last: int
    writers: frozenset[str]
    watermark: int | None

    @classmethod
    def of(cls, last: int, watermark: int | None, writers: str) -> Poll:
        """Build a poll from the procedure's columns. `writers` is a JSON array; its elements differ between engines."""
        return cls(last, frozenset(json.dumps(each) for each in json.loads(writers)), watermark)


@dataclass
class Watermark:
    """The highest row version below which no message can appear any more, according to the polls so far."""

    row_version: int = 0
    _polls: list[tuple[int, frozenset[str]]] = field(default_factory=list)

    def advance(self, poll: Poll) -> int:
        """Add one poll, and return the watermark. It never decreases."""
        if poll.watermark is not None:
            self._polls.clear()
            self.row_version = max(self.row_version, poll.watermark)
            return self.row_version
        if not any(PREPARED_PREFIX in writer for writer in poll.writers):
            ended = [last for last, writers in self._polls if not writers & poll.writers]
            self.row_version = max([self.row_version, *ended])
        self._polls = [earlier for earlier in self._polls if earlier[0] > self.row_version][-MAX_POLLS:]
        self._polls.append((poll.last, poll.writers))
        return self.row_version
