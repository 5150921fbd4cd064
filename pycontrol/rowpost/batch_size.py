"""How many messages a worker takes in one transaction: pure decisions from how the last ones went.

One message for each transaction is a commit for each message, and a commit waits for the disk. While a backlog waits
and the handler is quick, several share one: the size doubles, up to what fits into a time budget and into memory. It
falls to one as soon as the queue is empty, and after a failure until those that were rolled back have gone one by one.

>>> size = BatchSize(limit=500, budget=0.05).after(taken=1, seconds=0.001)
>>> size.now, size.after(taken=2, seconds=0.002).now, size.after(taken=1, seconds=0.001).now
(2, 4, 1)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rowpost.errors import SettingsError

__all__ = ["ADAPTIVE", "OFF", "BatchSize", "batch_size"]

ADAPTIVE, OFF = "adaptive", "off"
GREATEST = 500  # what receive_messages gives at once
GREATEST_BYTES = 8 * 1024 * 1024  # of headers and bodies, in one batch that adapts


@dataclass(frozen=True, slots=True)
class BatchSize:
    """`now` messages at most are taken in the next transaction, `limit` at any time.

    `budget`: seconds that handlers may take in one transaction, by what they took before; None for a fixed size.
    `alone`: so many messages are still taken one by one, after a failure.
    """

    limit: int
    budget: float | None
    now: int = 1
    alone: int = 0

    def after(self, taken: int, seconds: float, size: int = 0) -> BatchSize:
        """After `taken` messages of `size` bytes whose handlers took `seconds` together, none of which failed."""
        alone = max(0, self.alone - taken)
        if taken < self.now:  # no more wait: what comes next need not wait for neighbours
            alone = 0
        if alone:
            return replace(self, alone=alone)
        if self.budget is None:
            return replace(self, now=self.limit, alone=0)
        if taken < self.now:
            return replace(self, now=1, alone=0)
        in_time = int(self.budget * taken / seconds) if seconds > 0 else self.limit
        in_memory = GREATEST_BYTES * taken // size if size > 0 else self.limit
        return replace(self, now=max(1, min(self.limit, 2 * self.now, in_time, in_memory)), alone=0)

    def after_failure(self, alone: int) -> BatchSize:
        """After a transaction that was rolled back; `alone` of its messages may be the one that fails again."""
        return replace(self, now=1, alone=max(self.alone, alone))


def batch_size(setting: str | int, budget: float) -> BatchSize:
    """The size at the start, by the setting: "adaptive", "off" or a number of messages.

    Raises:
        SettingsError: none of them.

    >>> batch_size("off", 0.05).limit, batch_size(20, 0.05).now
    (1, 20)
    """
    if setting == ADAPTIVE:
        return BatchSize(GREATEST, budget)
    if setting == OFF:
        return BatchSize(1, None)
    if isinstance(setting, int) and not isinstance(setting, bool) and 1 <= setting <= GREATEST:
        return BatchSize(setting, None, now=setting)
    raise SettingsError(f"batch {setting!r} is not known: write {ADAPTIVE}, {OFF}, or a number from 1 to {GREATEST}")
