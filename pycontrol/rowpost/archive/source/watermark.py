"""Compute how far a stream may read a queue while other transactions write to it.

`Watermark` combines results of the procedure describe_stream (`Poll`) into the watermark: the highest row version below
which no further message can appear. It performs no I/O, so that tests can replay histories.

A row version is assigned before its transaction commits. The highest visible one therefore does not show whether a
lower one will still appear. Each poll records the last assigned row version first and the open writers second. When all
writers of a poll have ended, every row version up to the one in that poll has committed or will never appear. When
PostgreSQL prepares a transaction, its identifier changes to `-1/…`. While a prepared transaction exists, its earlier
identifier is unknown, so no earlier poll is used.

`notes` returns the polls that may still help, and `restore` continues with them in another process. Without them, a run
that starts while somebody writes would know nothing about the messages before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Notes", "Poll", "Watermark"]

PREPARED_PREFIX = "-1/"
MAX_POLLS = 1000
MAX_NOTES = 10
#: polls in the JSON of an offset: the last row version, and the writers
Notes = Sequence[tuple[int, list[str]]]


@dataclass(frozen=True)
class Poll:
    """One result of describe_stream, whose last row version was read before the writers.

    The server's own watermark is None while anybody writes.
    """

    last: int
    writers: frozenset[str]
    watermark: int | None

    @classmethod
    def of(cls, last: int, watermark: int | None, writers: str) -> Poll:
        """Build a poll from the procedure's columns.

        `writers` is a JSON array of names, on SQL Server of objects with a name.
        """
        return cls(
            last,
            frozenset(each if isinstance(each, str) else each["writer"] for each in json.loads(writers)),
            watermark,
        )


@dataclass
class Watermark:
    """The highest row version below which no message can appear any more, according to the polls so far."""

    row_version: int = 0
    _polls: list[tuple[int, frozenset[str]]] = field(default_factory=list)

    def advance(self, poll: Poll) -> int:
        """Add one poll, and return the watermark.

        It decreases only if the server has lost row versions, and assigns them again.
        """
        if poll.last < self.row_version:
            self.row_version = 0
        if poll.watermark is not None:
            self._polls.clear()
            self.row_version = max(self.row_version, poll.watermark)
            return self.row_version
        self._polls = [earlier for earlier in self._polls if earlier[0] <= poll.last]
        if not any(writer.startswith(PREPARED_PREFIX) for writer in poll.writers):
            ended = [last for last, writers in self._polls if not writers & poll.writers]
            self.row_version = max([self.row_version, *ended])
        useful = [
            (last, writers) for last, writers in self._polls if last > self.row_version and not writers >= poll.writers
        ]
        self._polls = [*useful, (poll.last, poll.writers)][-MAX_POLLS:]
        return self.row_version

    def notes(self) -> Notes:
        """Return at most ten polls, the oldest and the newest among them. None of them has helped yet."""
        steps = min(len(self._polls), MAX_NOTES)
        chosen = [self._polls[round(step * (len(self._polls) - 1) / max(steps - 1, 1))] for step in range(steps)]
        return [(last, sorted(writers)) for last, writers in chosen]

    def restore(self, row_version: int, notes: Iterable[Sequence[Any]]) -> None:
        """Continue from the row version that a stream has read, and with the notes of an earlier process."""
        self.row_version = max(self.row_version, row_version)
        self._polls = [(last, frozenset(writers)) for last, writers in notes] + self._polls
