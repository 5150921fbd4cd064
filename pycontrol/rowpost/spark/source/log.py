"""The stream that reads messages from PostgreSQL's log: `mode=log`.

Each INSERT into a queue is in the server's log (WAL), also if the message was received a millisecond later. A replication slot
keeps the log until this stream has confirmed it, and the plugin pgoutput decodes it. Nothing is taken from the queue.

An offset is a position in the log (log_slot.py). A batch has the transactions that committed between two positions. The order of
commits is final, so that nothing appears below a position later: no watermark is needed, and nobody holds messages back.

The planner scans the log to find where batches end (log_ahead.py), and one task reads each batch. The slot is confirmed only up to what
Spark's commit log has.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from rowpost.database.connection import Connection
from rowpost.database.dialects.pgoutput import format_lsn
from rowpost.database.dialects.replication import LogStream
from rowpost.database.dialects.slots import LogState, create_slot, describe_log, slot_name
from rowpost.spark.source.connection import APPLICATION, log_url
from rowpost.spark.source.log_ahead import LookAhead
from rowpost.spark.source.log_reading import read_rows, scan
from rowpost.spark.source.log_slot import (
    LogOffset,
    check_ready,
    check_same,
    check_slot,
    check_timeline,
    check_unread,
    confirm,
    log_position,
    publications,
)
from rowpost.spark.source.options import ReadOptions
from rowpost.spark.source.reread import read_again
from rowpost.spark.source.streams import QueueStream, StreamRange, not_ours
from rowpost.spark.versions import ReadLimit, ReadMaxRows, arrow_schema

__all__ = ["LogReader"]

#: without messages, a batch is made if the log has grown by so many bytes, so that the slot does not hold back the log of other tables
IDLE_BYTES = 16 << 20
#: the planner scans no further if it knows so many messages, or has received so many bytes
AHEAD_MESSAGES, AHEAD_BYTES = 100_000, 64 << 20
#: between two scans of a stream that does not end, at least so many times as long as the last one took
_PAUSES, _LONGEST_PAUSE_S = 4, 5.0
_QUEUE = "queue"


@dataclass(frozen=True)
class LogRange(StreamRange):
    """The transactions that committed between two positions, and by OID the tables of the queues."""

    slot: str
    queues: Mapping[int, str]


class LogReader(QueueStream):
    """Read the messages of queues from the server's log."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, StructType([field for field in schema if field.name != _QUEUE]))
        self.whole_schema = schema
        self._start_planning()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "whole_schema": self.whole_schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start_planning()

    def _start_planning(self) -> None:
        self._publications = publications(self.options.queues or (self.options.queue,))
        self._ahead = LookAhead()
        self._planned = 0
        self._next_scan = 0.0

    def initialOffset(self) -> LogOffset:
        """Return the start of the slot, which is created if it does not exist."""
        state = self._describe_log()
        if state.slot is None:
            name, wait_s = self._slot(state), self.options.watermark_timeout_s
            self.connection.run(lambda database: _create(database, name, wait_s))
            state = self._describe_log()
        slot = state.slot
        return self._offset(state, 0 if slot is None else slot.confirmed)

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the run to the transactions that are committed now."""
        self._target = self._describe_log().flushed

    def latestOffset(self, start: LogOffset, limit: ReadLimit) -> LogOffset:
        """Return the end of the next batch: of the last transaction with which it has at most as many messages as the limit."""
        state = self._check(start)
        begin = self._planned = log_position(start)
        self._ahead.begin(begin)
        wanted = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        target = state.flushed if self._target is None else self._target
        if self._ahead.scanned < target and (wanted is None or self._ahead.messages < wanted):
            self._scan(self._slot(state), target, wanted)
        end = self._ahead.end(wanted, target)
        if end is None and min(self._ahead.scanned, target) - begin >= IDLE_BYTES:
            end = self._ahead.scanned
        if end is None:
            return start
        self._planned = end
        return self._offset(state, end)

    def reportLatestOffset(self) -> LogOffset | None:
        """Return the end of the log, and how far the stream is behind it, for the query's progress."""
        return self.lag(self._planned)

    def measure_lag(self, database: Connection, position: int) -> dict[str, object]:
        """Count the messages that the scan has found above a position, and the bytes of the log above it, with those of other tables."""
        state = self._state(database)
        waiting = self._ahead.after(position)
        return {
            "log": format_lsn(state.flushed),
            "lag_messages": min(sum(each.messages for each in waiting), AHEAD_MESSAGES),
            "lag_seconds": _age_s(waiting[0].at, state.now) if waiting else 0.0,
            "lag_bytes": max(state.flushed - position, 0),
            "held_by": [],
        }

    def partitions(self, start: LogOffset, end: LogOffset) -> Sequence[LogRange]:
        """Return the batch as one range, because a slot serves one reader."""
        check_unread(start, end)
        state = self._check(start)
        queues = {state.tables[publication].oid: queue for queue, publication in self._publications.items()}
        return [LogRange(log_position(start), log_position(end), True, self._slot(state), queues)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of one batch, the same at every attempt."""
        if not isinstance(partition, LogRange):
            raise not_ours(partition)
        url, schema = log_url(self.options.environment), arrow_schema(self.whole_schema)

        def rows() -> Iterator[pa.RecordBatch]:
            with LogStream(url, APPLICATION) as stream:
                stream.start(partition.slot, partition.above, self._publications.values())
                yield from read_rows(stream, partition.above, partition.upto, partition.queues, schema, self.options.batch_bytes)

        with self.task_connection(partition) as connection:
            yield from read_again(connection, rows)

    def commit(self, end: LogOffset) -> None:
        """Confirm the committed batches, so that the server may remove their log."""
        confirm(self.connection, end)

    def _describe_log(self) -> LogState:
        state = self.connection.run(self._state)
        check_ready(state, self._publications)
        return state

    def _state(self, database: Connection) -> LogState:
        log_url(self.options.environment)  # refuses SQL Server
        with database.translated():
            connection = database.driver_connection
            if self.options.slot is None:
                name = slot_name(database.dialect.database_name(connection), list(self._publications))
            else:
                name = self.options.slot
            return describe_log(connection, name, list(self._publications.values()))

    def _slot(self, state: LogState) -> str:
        return self.options.slot or slot_name(state.database, list(self._publications))

    def _check(self, start: LogOffset) -> LogState:
        """Return the state of the log. Raises StreamRefused if the stream cannot continue at `start`."""
        log_position(start)
        state = self._describe_log()
        check_same(start, self._slot(state), state, self._publications)
        if start["timeline"] != state.timeline:
            check_timeline(start, state, self._left_timeline(start["timeline"], state.timeline))
        check_slot(start, state, fail_on_data_loss=self.options.fail_on_data_loss)
        return state

    def _left_timeline(self, timeline: int, current: int) -> int | None:
        url = log_url(self.options.environment)

        def ask(_: Connection) -> int | None:
            with LogStream(url, APPLICATION) as stream:
                return stream.switch_point(timeline, current)

        return None if timeline > current else self.connection.run(ask)

    def _offset(self, state: LogState, position: int) -> LogOffset:
        queues = {queue: state.tables[publication].identity for queue, publication in self._publications.items()}
        return {"log": format_lsn(position), "slot": self._slot(state), "system": state.system, "timeline": state.timeline, "queues": queues}

    def _scan(self, slot: str, target: int, wanted: int | None) -> None:
        """Look for transactions up to a position. A stream that has nothing to read for long scans more rarely the longer a scan takes."""
        url, queues = log_url(self.options.environment), set(self._publications.values())
        if self._target is None:
            time.sleep(min(max(self._next_scan - time.monotonic(), 0.0), _LONGEST_PAUSE_S))

        def go(_: Connection) -> None:
            with LogStream(url, APPLICATION) as stream:
                stream.start(slot, self._ahead.scanned, queues)
                scan(stream, self._ahead, target, most=max(AHEAD_MESSAGES, wanted or 0), enough=wanted or 0, most_bytes=AHEAD_BYTES)

        begun = time.monotonic()
        self.connection.run(go)
        ended = time.monotonic()
        self._next_scan = ended + (0.0 if self._ahead.messages else _PAUSES * (ended - begun))


def _create(database: Connection, name: str, wait_s: float) -> None:
    with database.translated():
        create_slot(database.driver_connection, name, wait_s)


def _age_s(at: datetime, now: datetime) -> float:
    return round(max((now - at).total_seconds(), 0.0), 3)
