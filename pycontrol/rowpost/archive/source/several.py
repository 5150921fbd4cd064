"""A stream that reads several queues: `subscribe=a,b` or `subscribePattern=audit.*`.

`Several` has one Tail or Drain for each queue, which share a connection. Its offsets are `{"queues": {name: offset}}`
with the offsets of these readers. The messages have the column `queue`.

A queue that a pattern finds after the stream has begun is read from its beginning. The offset of a queue that is no
longer subscribed stays in the checkpoint, so that its messages are not read twice if it is subscribed again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from rowpost.archive.identity import Offset
from rowpost.archive.source.connection import PatientConnection
from rowpost.archive.source.cuts import Bounds
from rowpost.archive.source.drain import Drain
from rowpost.archive.source.options import DRAIN, ReadOptions
from rowpost.archive.source.queue_stream import StreamRefused
from rowpost.archive.source.streams import BatchPart, Tail, check_offset
from rowpost.errors import QueueNotFound

__all__ = ["Several"]

DISCOVERY_INTERVAL_S = 30.0
_QUEUE = "queue"


class Several:
    """Read several queues in one stream, each exactly as a stream of its own would."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self.options, self.schema = options, schema
        self._connection = PatientConnection(self.options)
        self._readers: dict[str, Tail | Drain] = {}
        self._names: tuple[str, ...] | None = None
        self._names_until = 0.0
        self._ends = False

    def reader(self, name: str) -> Tail | Drain:
        """Return the reader of one queue."""
        if name not in self._readers:
            columns = pa.schema([field for field in self.schema if field.name != _QUEUE])
            kind = Drain if self.options.mode == DRAIN else Tail
            self._readers[name] = kind(
                replace(self.options, queue=name, queues=(), pattern=None), columns, connection=self._connection
            )
        return self._readers[name]

    def names(self) -> tuple[str, ...]:
        """Return the queues.

        A pattern is compared with the database's queues every 30 seconds, in a run that ends only once.
        """
        if self.options.pattern is None:
            return self.options.queues
        if self._names is None or (not self._ends and time.monotonic() >= self._names_until):
            rows = self._connection.run(lambda database: database.call("list_queues"))
            own = [row.queue_name for row in rows if row.kind != "external"]
            self._names = tuple(sorted(name for name in own if re.fullmatch(self.options.pattern or "", name)))
            self._names_until = time.monotonic() + DISCOVERY_INTERVAL_S
        return self._names

    def initial(self) -> Offset:
        """Return the start of each queue."""
        return {"queues": {name: self.reader(name).initial() for name in self.names()}}

    def end_at_present(self) -> None:
        """Limit the run to the messages written before it."""
        self._ends = True
        for name in self.names():
            self.reader(name).end_at_present()

    def plan(self, start: Offset, bounds: Bounds) -> Offset:
        """Return the end of the next batch for each queue. They share the bounds."""
        starts, names = self._by_queue(start), self.names()
        gone = sorted(starts.keys() - set(names))
        if gone and self.options.pattern is not None and self.options.fail_on_data_loss:
            raise StreamRefused(
                f"The queue {gone[0]} of this stream is gone, or the pattern {self.options.pattern!r} does not match "
                "it any more. Its unread messages may be lost. To continue with the other queues, set "
                "failOnDataLoss=false."
            )
        begins = {name: starts.get(name) or self.reader(name).initial(joined=True) for name in names}
        shares = dict.fromkeys(names, bounds)
        if bounds != Bounds():
            shares = bounds.shared({name: self.reader(name).estimate(begins[name]) for name in names})
        ends = {name: self.reader(name).plan(begins[name], shares[name]) for name in names}
        if all(ends[name] == starts.get(name) for name in names):
            return start
        return {"queues": {**starts, **ends}}

    def report(self) -> Offset:
        """Return what each queue reports, and the lag of all."""
        found = {name: self.reader(name).report() for name in self.names()}
        ages = [each["lag_seconds"] for each in found.values() if each.get("lag_seconds") is not None]
        spooled = [each["spooled"] for each in found.values() if "spooled" in each]
        return {
            "queues": found,
            "lag_messages": sum(each["lag_messages"] for each in found.values()),
            "lag_seconds": max(ages, default=None),
            "held_by": [holder for each in found.values() for holder in each.get("held_by", ())],
            **({"spooled": sum(spooled)} if spooled else {}),
        }

    def parts(self, start: Offset, end: Offset) -> Sequence[BatchPart]:
        """Split the batch of each queue."""
        check_offset(("queues",), end)
        starts, ends = self._by_queue(start), end["queues"]
        changed = [name for name in ends if ends[name] != starts.get(name)]
        found = [
            part
            for name in changed
            for part in self.reader(name).parts(starts.get(name) or self.reader(name).initial(joined=True), ends[name])
        ]
        return [replace(part, first=part is found[0]) for part in found]

    def read(self, part: BatchPart) -> Iterator[pa.RecordBatch]:
        """Read the messages of one range, and add the name of the queue."""
        for batch in self.reader(part.queue).read(part):
            named = batch.append_column(_QUEUE, pa.repeat(part.queue, len(batch)))
            yield named.select(self.schema.names).cast(self.schema)

    def commit(self, end: Offset) -> None:
        """Delete the messages of committed batches from the spools."""
        for name, offset in self._by_queue(end).items():
            try:
                self.reader(name).commit(offset)
            except QueueNotFound:  # only a queue that is not subscribed any more may be gone
                if name in self.names():
                    raise

    def stop(self) -> None:
        """Close the planner's connection."""
        self._connection.close()

    def _by_queue(self, offset: Offset) -> dict[str, Offset]:
        """Return the offset of each queue. The checkpoint of a stream of one queue continues with that queue."""
        if "queues" in offset:
            queues: dict[str, Offset] = offset["queues"]
            return queues
        check_offset(("queue",), offset)
        for name in self.names():
            if self.reader(name).describe().identity == offset["queue"]:
                return {name: offset}
        raise StreamRefused(
            f"This checkpoint belongs to the queue {offset['queue']}, which is not among those of this stream. Start "
            "with a new checkpoint."
        )
