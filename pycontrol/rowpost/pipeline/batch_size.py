"""How many messages a worker takes in one transaction: pure decisions from how the last ones went.

One message for each transaction is a commit for each message, and a commit waits for the disk. While a backlog waits
and the handler is quick, several share one: the size grows fourfold, up to what fits into a time budget and into memory. It
falls to one as soon as the queue is empty. A failure rolls back the whole transaction: then the size is chosen so that
the message that failed goes alone, and its neighbours go together.

>>> size = BatchSize(limit=500, budget=0.05).after(taken=1, seconds=0.001)
>>> size.now, size.after(taken=4, seconds=0.004).now, size.after(taken=1, seconds=0.001).now
(4, 16, 1)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rowpost.settings.worker import ADAPTIVE, LARGEST_BATCH, OFF, check_batch

__all__ = ["BatchSize", "batch_size"]

GROWTH = 4  # a burst finds full batches after five transactions
GREATEST_BYTES = 8 * 1024 * 1024  # of headers and bodies, in one batch that adapts
# So many messages go alone after a conflict, and this many times as many after each further one.
ALONE, MORE, LONGEST = 64, 4, 4096


@dataclass(frozen=True, slots=True)
class BatchSize:
    """`now` messages at most are taken in the next transaction, `limit` at any time.

    `budget`: seconds that handlers may take in one transaction, by what they took before; None for a fixed size.
    `then`: after a failure, the sizes that come next; `held`: so many messages are to be taken before the size grows.
    `conflicts`: batches lost to one, less those that went well since.
    """

    limit: int
    budget: float | None
    now: int = 1
    then: tuple[int, ...] = ()
    held: int = 0
    conflicts: int = 0

    def after(self, taken: int, seconds: float, size: int = 0) -> BatchSize:
        """After `taken` messages of `size` bytes whose handlers took `seconds` together, none of which failed."""
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
        if taken < self.now:  # no more wait: what comes next need not wait for neighbours
            return 1
        in_time = int(self.budget * taken / seconds) if seconds > 0 else self.limit
        in_memory = GREATEST_BYTES * taken // size if size > 0 else self.limit
        return max(1, min(self.limit, GROWTH * self.now, in_time, in_memory))

    def after_failure(self, place: int) -> BatchSize:
        """After a transaction that was rolled back since the message at `place`, from 1, failed: those before it may go
        together, it goes alone, and then the size grows from one."""
        held = self.held if self.now == 1 else 0  # one that went alone anyway changes nothing for the others
        return replace(self, now=max(1, place - 1), then=(1,) if place > 1 else (), held=held)

    def after_loss(self, taken: int) -> BatchSize:
        """After a transaction of `taken` messages that was rolled back by none of them alone: one half after the other."""
        return replace(self, now=max(1, min(self.now, taken) // 2), then=(), held=max(self.held, taken))

    def after_conflict(self) -> BatchSize:
        """After a transaction that another worker's locks or changes undid: the more messages, the more to meet on. So
        they go alone for a while, and for longer each time.

        >>> size = BatchSize(limit=500, budget=0.05, now=8).after_conflict()
        >>> size.now, size.held, size.after_conflict().held
        (1, 64, 256)
        """
        alone = min(ALONE * MORE**self.conflicts, LONGEST)
        return replace(self, now=1, then=(), held=alone, conflicts=min(self.conflicts + 1, 10))


def batch_size(setting: str | int, budget: float) -> BatchSize:
    """The size at the start, by the setting: "adaptive", "off" or a number of messages.

    Raises:
        SettingsError: none of them.

    >>> batch_size("off", 0.05).limit, batch_size(20, 0.05).now
    (1, 20)
    """
    check_batch(setting)
    if setting == ADAPTIVE:
        return BatchSize(LARGEST_BATCH, budget)
    if setting == OFF:
        return BatchSize(1, None)
    return BatchSize(int(setting), None, now=int(setting))
