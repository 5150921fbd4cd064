"""Decide where a batch of the server's log ends. Performs no I/O.

`LookAhead` keeps the transactions that a scan has found above the last planned position: where each ends, how many messages it
has, and when it committed. A batch is a whole number of transactions, so that a larger one than `maxOffsetsPerTrigger` is a batch of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

__all__ = ["LookAhead", "Transaction"]


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction with messages. `end` is the LSN after its commit record, `at` when it committed (UTC, the server's clock)."""

    end: int
    messages: int
    at: datetime


@dataclass
class LookAhead:
    """The transactions between two LSNs, with `messages` messages. All that committed below `scanned` are known, down to `begun`."""

    begun: int = 0
    scanned: int = 0
    messages: int = 0
    _found: deque[Transaction] = field(default_factory=deque)

    def begin(self, position: int) -> None:
        """Forget what is below a position, or all if the position is not within what is known."""
        if not self.begun <= position <= self.scanned:
            self.scanned = position
            self._found.clear()
            self.messages = 0
        self.begun = position
        while self._found and self._found[0].end <= position:
            self.messages -= self._found.popleft().messages

    def add(self, transaction: Transaction) -> None:
        """Note the next transaction in the order of the log."""
        if transaction.messages:
            self._found.append(transaction)
            self.messages += transaction.messages
        self.reach(transaction.end)

    def reach(self, position: int) -> None:
        """Note that all transactions that committed below a position are known."""
        self.scanned = max(self.scanned, position)

    def end(self, limit: int | None, upto: int) -> int | None:
        """Return the end of a batch of at most `limit` messages, or of one transaction if that has more. None if there is none up to `upto`."""
        end, messages = None, 0
        for each in self._found:
            if each.end > upto or (end is not None and limit is not None and messages + each.messages > limit):
                break
            end, messages = each.end, messages + each.messages
        return end

    def after(self, position: int) -> Sequence[Transaction]:
        """Return the transactions that end above a position."""
        return [each for each in self._found if each.end > position]
