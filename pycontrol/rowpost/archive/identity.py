"""Which offsets of a queue an archive's table confirms: the guard between a table, a checkpoint and a queue.

Each commit of a batch stores, for each queue in it, the query, the number of the batch, and the offsets where it starts
and ends (`Recorded`), by the epoch of the queue: the identity of its table, which changes if the queue is dropped and
created again. Later commits repeat what earlier ones have stored, because a table's log loses its old entries.

A batch is written if it starts where the table ends, and skipped if it is the batch that the table has. Everything else
is refused: a checkpoint that is older than its table, or newer, and a second query that archives the same queue. A new
checkpoint starts where the table ends. A commit of an earlier version has no offsets: then only the query's last batch
number (`last`, or -1) is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rowpost.errors import SparkFailed

__all__ = [
    "CheckpointProgress", "Offset", "Recorded", "StreamBatch", "by_epoch", "by_queue", "check_known", "check_start",
    "is_before", "is_new", "is_same", "recorded_after",
]  # fmt: skip

#: The offset of a queue in a checkpoint: `queue` is its epoch; row_version for a tail, owner and number for a drain.
Offset = dict[str, Any]
_POSITION = ("queue", "owner", "row_version", "number")


@dataclass(frozen=True)
class Recorded:
    """What a table confirms of one epoch of a queue. `start` is None if the checkpoint did not say it."""

    queue: str
    query: str
    batch: int
    start: Offset | None
    end: Offset


#: What a table confirms, by epoch.
Records = Mapping[str, Recorded]


@dataclass(frozen=True)
class StreamBatch:
    """A batch of a stream: the query's id, the number from 0, and offsets and names of queues by epoch, if it reads
    queues.
    """

    archive: str
    query: str
    number: int
    starts: Mapping[str, Offset] = field(default_factory=dict)
    ends: Mapping[str, Offset] = field(default_factory=dict)
    queues: Mapping[str, str] = field(default_factory=dict)
    way_out: str = ""

    @property
    def moved(self) -> dict[str, Offset]:
        """The ends of the queues of which the batch has messages, or gaps between them."""
        return {
            epoch: end
            for epoch, end in self.ends.items()
            if epoch not in self.starts or not is_same(self.starts[epoch], end)
        }

    def refused(self, why: str) -> SparkFailed:
        """Return the error for a batch that is not the next one of its table."""
        return SparkFailed(
            f"Batch {self.number} is not added to the archive {self.archive}: {why}. Nothing was deleted. "
            f"{self.way_out}".rstrip()
        )


@dataclass(frozen=True)
class CheckpointProgress:
    """What a checkpoint has stored.

    `planned` and `committed` are the numbers of the last batches, or -1. `query` is None for a new checkpoint.
    `offsets` returns the offsets of a batch by epoch, or None if they are not stored any more.
    """

    place: str
    query: str | None
    planned: int
    committed: int
    offsets: Callable[[int], Mapping[str, Offset] | None]


def by_queue(offset: Mapping[str, Any] | None, queue: str) -> dict[str, Offset]:
    """Return the offsets of a stream by queue, of which `queue` is the only one if it has one.

    Those of another source are left out.
    """
    found = (offset or {}).get("queues", {queue: offset})
    return {name: one for name, one in found.items() if isinstance(one, dict) and isinstance(one.get("queue"), str)}


def by_epoch(offset: Mapping[str, Any] | None) -> dict[str, Offset]:
    """Return the same offsets by epoch."""
    return {one["queue"]: one for one in by_queue(offset, "").values()}


def is_new(batch: StreamBatch, records: Records, last: int) -> bool:
    """Tell whether a batch starts where the table ends. False if the table has it.

    Raises SparkFailed for any other batch.
    """
    own = {epoch: each for epoch, each in records.items() if each.query == batch.query}
    if any(own[epoch].batch == batch.number for epoch in own.keys() & batch.ends.keys()):
        differing = [
            epoch
            for epoch, end in batch.moved.items()
            if epoch not in own or not _is_batch(own[epoch], batch, epoch, end)
        ]
        if differing:
            names = ", ".join(sorted(batch.queues.get(epoch) or epoch for epoch in differing))
            raise batch.refused(f"the table has batch {batch.number} of this query with other offsets of {names}")
        return False
    if last == batch.number and not own:  # written by an earlier version, which stored no offsets
        return False
    if last >= batch.number:
        raise batch.refused(f"the table has batch {last} of this query already, and this is batch {batch.number}")
    for epoch, end in batch.moved.items():
        known, start = records.get(epoch), batch.starts.get(epoch)
        if known is not None and (start is None or not is_same(known.end, start) or is_before(end, start)):
            raise batch.refused(
                f"the table ends at {_place(known.end)} of {known.queue}, and this batch starts at {_place(start)}"
            )
    return True


def recorded_after(batch: StreamBatch, records: Records) -> dict[str, Recorded]:
    """Return what a table confirms after a batch."""
    new = {
        e: Recorded(batch.queues.get(e, ""), batch.query, batch.number, batch.starts.get(e), end)
        for e, end in batch.ends.items()
        if e in batch.moved or (e in records and is_same(records[e].end, end))
    }
    return {**records, **new}


def check_start(
    progress: CheckpointProgress, records: Records, last: int, archive: str, queues: Sequence[str], way_out: str
) -> None:
    """Check, before a query starts, that its checkpoint and its table belong together, for the `queues` that it will
    read.

    Raises SparkFailed if the query would skip messages, or archive messages again.
    """
    if progress.query is not None:
        if last > progress.planned:
            raise SparkFailed(
                f"The checkpoint {progress.place} of {', '.join(queues)} is older than the archive {archive}, or its "
                f"offsets were deleted: the table has batch {last} of its query, and the checkpoint "
                f"{f'ends at batch {progress.planned}' if progress.planned >= 0 else 'has no batch'}. Nothing was read "
                f"or deleted. {way_out}"
            )
        _check_complete(progress, records, last, archive, way_out)
    committed, planned = progress.offsets(progress.committed) or {}, progress.offsets(progress.planned) or {}
    for epoch, known in records.items():
        if (
            known.queue in queues
            and epoch in planned
            and not _continues(progress, known, committed.get(epoch), planned[epoch])
        ):
            raise SparkFailed(
                f"The checkpoint {progress.place} ends at {_place(committed.get(epoch))} of {known.queue}, but the "
                f"archive {archive} ends at {_place(known.end)}: another checkpoint has archived the queue, or the "
                f"checkpoint and the table are of different times. Nothing was read or deleted. {way_out}"
            )


def check_known(progress: CheckpointProgress, records: Records, present: Collection[str], archive: str) -> None:
    """Raise SparkFailed if a new checkpoint would begin a queue that the table has (`present`), but with no offset."""
    unknown = sorted(set(present) - {each.queue for each in records.values()})
    if unknown and progress.planned < 0:
        raise SparkFailed(
            f"The archive {archive} has messages of {', '.join(unknown)}, but not the offset up to which it has them: "
            f"an earlier version of rowpost or another program added them. The new checkpoint {progress.place} would "
            "archive them again. Continue once with the checkpoint that archived them, or archive the queue to "
            "another folder."
        )


def _check_complete(progress: CheckpointProgress, records: Records, last: int, archive: str, way_out: str) -> None:
    """Raise SparkFailed if the checkpoint has committed batches that the table lacks."""
    has_offsets = any(each.query == progress.query for each in records.values())
    # an earlier version, which stored no offsets, did not commit batches without messages
    if last >= progress.committed or (last >= 0 and not has_offsets):
        return
    missing, before = 0, {} if last < 0 else progress.offsets(last)
    for number in range(last + 1, progress.committed + 1):
        found = progress.offsets(number)  # Spark stores those of the last hundred batches
        missing += (
            found is None
            or before is None
            or any(e not in before or not is_same(before[e], end) for e, end in found.items())
        )
        before = found
    if missing:
        raise SparkFailed(
            f"The archive {archive} is older than the checkpoint {progress.place}: {missing} "
            f"{'batch' if missing == 1 else 'batches'} that the checkpoint has committed are not in the table, which "
            "was restored or replaced. Nothing was read or deleted. Restore the newer table. If you do not have it, "
            f"the messages that are still in the queue can be archived again. {way_out}"
        )


def _continues(progress: CheckpointProgress, known: Recorded, committed: Offset | None, planned: Offset) -> bool:
    """Whether a query continues where the table ends, or repeats the last batch of the table."""
    if committed is not None and is_same(known.end, committed):
        return True
    if progress.planned == progress.committed:
        return False
    if known.query == progress.query and known.batch == progress.planned:
        return is_same(known.end, planned)
    # the queue begins in the planned batch, whose start is in no checkpoint: it will be the end of the table
    return committed is None and known.end.get("owner") == planned.get("owner") and not is_before(planned, known.end)


def _is_batch(known: Recorded, batch: StreamBatch, epoch: str, end: Offset) -> bool:
    start = batch.starts.get(epoch) if batch.number else None  # no checkpoint has the start of the first batch
    return (
        known.batch == batch.number
        and is_same(known.end, end)
        and (start is None or known.start is None or is_same(known.start, start))
    )


def is_same(one: Offset, other: Offset) -> bool:
    """Whether two offsets are at the same place of the same stream. The polls of a tail are not compared."""
    return all(one.get(name) == other.get(name) for name in _POSITION)


def is_before(one: Offset, other: Offset) -> bool:
    """Whether an offset is before another of the same stream."""
    return any(one.get(name, 0) < other.get(name, 0) for name in ("row_version", "number"))


def _place(offset: Offset | None) -> str:
    if offset is None:
        return "no offset"
    if "row_version" in offset:
        return f"row version {offset['row_version']}"
    return f"number {offset.get('number')} of the spool"
