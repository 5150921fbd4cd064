"""What became of each order, and what a mode promises of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.support.campaign.endpoints import is_hopeless

__all__ = ["Ledger"]


@dataclass
class Ledger:
    """How often each order is where.

    Attributes:
        acknowledged: the orders whose commit the sender has seen.
        sent: the orders whose send was committed, as the server says.
        handled: written by handlers. With participants, what all databases agree on.
        forwarded: messages in Billing.
        failed: messages in the error queue.
        disagree: orders that were written in one database and not in another.
        waiting: orders that are still in the queue, or delayed.
    """

    acknowledged: set[int]
    sent: set[int]
    handled: Counter[int]
    forwarded: Counter[int]
    failed: Counter[int]
    disagree: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)

    def wrong(self, mode: str, may_lose: int = 0) -> list[str]:
        """Return what breaks the mode's promise, in sentences.

        Args:
            may_lose: messages that the mode none may lose: those that were in hand when a process died.
        """
        found = []
        unknown = (self.handled.keys() | self.forwarded.keys() | self.failed.keys()) - self.sent
        if unknown:
            found.append(f"never sent, and yet there: {_some(unknown)}")
        if self.acknowledged - self.sent:
            found.append(f"committed, and not there: {_some(self.acknowledged - self.sent)}")
        if self.disagree:
            found.append(f"written in one database and not in the other: {_some(self.disagree)}")
        lost = {
            number
            for number in self.sent
            if not self.handled[number] and not self.failed[number] and number not in self.waiting
        }
        if len(lost) > (may_lose if mode == "none" else 0):
            found.append(f"lost: {_some(lost)}")
        for what, numbers in self._doubled(mode).items():
            if numbers:
                found.append(f"{what}: {_some(numbers)}")
        return found

    def _doubled(self, mode: str) -> dict[str, set[int]]:
        exact = mode in ("sends_atomic_with_receive", "transaction_scope", "outbox", "lease")
        # A handled message may be in the error queue: with an outbox, if its workers died before the queue's commit, and in the mode none, if
        # its messages could not be sent.
        apart = mode not in ("outbox", "none")
        return {
            "handled twice": {number for number, times in self.handled.items() if times > 1},
            "in the error queue twice": {number for number, times in self.failed.items() if times > 1},
            "handled and in the error queue": {number for number in self.handled if self.failed[number]}
            if apart
            else set(),
            "handled, and its message was not sent once": {
                number for number in self.handled if exact and self.forwarded[number] != self.handled[number]
            },
            "handled, and its message was not sent": {
                number for number in self.handled if mode == "receive_only" and not self.forwarded[number]
            },
            "sent and not handled": {number for number in self.forwarded if exact and not self.handled[number]},
            "handled, although its handler fails": {
                number for number in self.handled if mode != "none" and is_hopeless(number)
            },
        }


def _some(numbers: set[int]) -> str:
    shown = ", ".join(map(str, sorted(numbers)[:10]))
    return f"{len(numbers)} ({shown}{', ...' if len(numbers) > 10 else ''})"
