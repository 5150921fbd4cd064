"""Decide how many messages a worker takes in one transaction.

The decisions are pure functions of the last transactions.

Each commit waits for the disk, so one transaction for each message is slow. While the queue has a backlog and handlers
are fast, several messages share a transaction: the size grows by a factor of 4, up to what fits into a time budget and
into memory. It falls to 1 as soon as the queue is empty. A failure rolls back the whole transaction. Then the size is
chosen so that the message that failed is handled alone, and the others are handled together.

>>> size = BatchSize(limit=500, budget=0.05).after(taken=1, seconds=0.001)
>>> size.now, size.after(taken=4, seconds=0.004).now, size.after(taken=1, seconds=0.001).now
(4, 16, 1)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rowpost.settings.worker import ADAPTIVE, LARGEST_BATCH, OFF, check_batch

__all__ = ["BatchSize", "batch_size"]

GROWTH = 4  # a burst reaches full batches after five transactions
MAX_BYTES = 8 * 1024 * 1024  # of headers and bodies, in a batch whose size adapts
#: how many messages are handled alone after a conflict, the factor after each further conflict, and the maximum
ALONE_AFTER_CONFLICT, ALONE_FACTOR, MAX_ALONE = 64, 4, 4096


@dataclass(frozen=True, slots=True)
class BatchSize:
    """The size of the next transaction.

    Attributes:
        limit: the maximum at any time.
        budget: how many seconds the handlers of one transaction may take, estimated from the last ones; None for a
            fixed size. Seconds of a processor: if many workers share few processors, each batch takes longer by the
            clock, and smaller batches would add commits to their work. By the clock, they may take four times as long.
        now: the maximum for the next transaction.
        then: the sizes after that, if a message failed.
        held: how many messages must be taken before the size grows again.
        conflicts: conflicts of batches, less the batches that succeeded since.
    """

    limit: int
    budget: float | None
    now: int = 1
    then: tuple[int, ...] = ()
    held: int = 0
    conflicts: int = 0

    def after(self, taken: int, seconds: float, size: int = 0) -> BatchSize:
        """Return the size after `taken` messages of `size` bytes succeeded. Their handlers took `seconds` together."""
        emptied = taken < self.now
        if self.then and not emptied:
            return replace(self, now=self.then[0], then=self.then[1:])
        if self.held > taken and not emptied:
            return replace(self, held=self.held - taken)
        calmer = max(0, self.conflicts - (taken > 1))
        return replace(self, now=self._next(taken, seconds, size), then=(), held=0, conflicts=calmer)

    def _next(self, taken: int, seconds: float, size: int) -> int:
        if self.budget is None:
            return self.limit
        if taken < self.now:  # the queue is empty: the next message should not wait for others
            return 1
        in_time = int(self.budget * taken / seconds) if seconds > 0 else self.limit
        in_memory = MAX_BYTES * taken // size if size > 0 else self.limit
        return max(1, min(self.limit, GROWTH * self.now, in_time, in_memory))

    def after_failure(self, place: int) -> BatchSize:
        """Return the size after the message at `place` (from 1) failed and the transaction was rolled back.

        The messages before it are handled together and it is handled alone. Then the size grows from 1.
        """
        held = self.held if self.now == 1 else 0  # a message that was handled alone does not affect others
        return replace(self, now=max(1, place - 1), then=(1,) if place > 1 else (), held=held)

    def after_loss(self, taken: int) -> BatchSize:
        """Return the size after a transaction of `taken` messages was rolled back, but not because of one of them: half
        of it.
        """
        return replace(self, now=max(1, min(self.now, taken) // 2), then=(), held=max(self.held, taken))

    def after_lost_session(self, taken: int) -> BatchSize:
        """Return the size after the server ended the session of a transaction of `taken` messages: all of them are
        handled alone.

        >>> size = BatchSize(limit=500, budget=0.05, now=8).after_lost_session(8)
        >>> size.now, size.held
        (1, 8)
        """
        return replace(self, now=1, then=(), held=max(self.held, taken))

    def after_conflict(self) -> BatchSize:
        """Return the size after another worker's locks or changes rolled the transaction back.

        More messages in a transaction make a conflict more likely. So messages are handled alone for a while, and
        longer each time.

        >>> size = BatchSize(limit=500, budget=0.05, now=8).after_conflict()
        >>> size.now, size.held, size.after_conflict().held
        (1, 64, 256)
        """
        alone = min(ALONE_AFTER_CONFLICT * ALONE_FACTOR**self.conflicts, MAX_ALONE)
        return replace(self, now=1, then=(), held=alone, conflicts=min(self.conflicts + 1, 10))


def batch_size(setting: str | int, budget: float) -> BatchSize:
    """Return the first size for a setting: "adaptive", "off" or a number of messages.

    Args:
        setting: the setting `batch`.
        budget: how many seconds the handlers of one transaction may take.

    Raises:
        SettingsError: the setting is none of these.

    >>> batch_size("off", 0.05).limit, batch_size(20, 0.05).now
    (1, 20)
    """
    check_batch(setting)
    if setting == ADAPTIVE:
        return BatchSize(LARGEST_BATCH, budget)
    if setting == OFF:
        return BatchSize(1, None)
    return BatchSize(int(setting), None, now=int(setting))
