"""How far a stream may read while others write: decided from what describe_stream saw, one look after another.

A row version is drawn before its transaction commits, so the highest one that can be seen says nothing about those below
it. Each look notes the last row version that was drawn, and then who was writing. When everybody of a note has ended,
all that was drawn up to its row version has committed or will never come: that is the horizon.

A prepared transaction (PostgreSQL names it `-1/…`) has another name than it had while it ran: as long as there is one
that a note does not know, no older note is safe.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

__all__ = ["Horizon", "Look"]

PREPARED = "-1/"
MOST_NOTES = 1000


@dataclass(frozen=True)
class Look:
    """What describe_stream said: the last row version that was drawn, then who writes; `settled` where nobody does."""

    last: int
    writers: frozenset[str]
    settled: int | None

    @classmethod
    def of(cls, last: int, settled: int | None, writers: str) -> Look:
        """From the procedure's columns; engines name writers as they like."""
        return cls(last, frozenset(json.dumps(each) for each in json.loads(writers)), settled)


@dataclass
class Horizon:
    """The highest row version below which nothing can appear any more, as far as was seen."""

    reached: int = 0
    _notes: list[tuple[int, frozenset[str]]] = field(default_factory=list)

    def see(self, look: Look) -> int:
        """Takes one more look into account, and returns the horizon."""
        if look.settled is not None:
            self._notes.clear()
            self.reached = max(self.reached, look.settled)
            return self.reached
        if not any(PREPARED in writer for writer in look.writers):
            ended = [row_version for row_version, writers in self._notes if not writers & look.writers]
            self.reached = max([self.reached, *ended])
        self._notes = [note for note in self._notes if note[0] > self.reached][-MOST_NOTES:]
        self._notes.append((look.last, look.writers))
        return self.reached
