"""Read the messages of queues from a stream of the server's log, or only count them.

The server sends the transactions in the order of their commits. Between them it reports its position: it has sent all transactions
that committed below it.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import pyarrow as pa

from rowpost.database.dialects.pgoutput import Begin, Commit, Decoder, Insert, Relation, decode, format_lsn
from rowpost.database.dialects.replication import LogStream
from rowpost.errors import DatabaseUnavailable
from rowpost.spark.source.columns import COLUMNS, batches
from rowpost.spark.source.log_ahead import LookAhead, Transaction

__all__ = ["read_rows", "scan"]

#: the columns of a queue's table, by those of a message
_TABLE = {"id": "id", "expires": "expires", "headers": "headers", "body": "body", "row_version": "seq"}
_QUEUE = "queue"
_BATCH_ROWS = 10_000
_POLL_S = 1.0
#: if the server reports the same position so many times, it has sent all that is durable
_SAME_REPORTS, _BETWEEN_REPORTS_S = 3, 0.02


def _messages(stream: LogStream, upto: int) -> Generator[bytes, None, int]:
    """Yield messages until the server has sent all transactions that committed below a position, or all that are durable.

    The end of what is durable may lie within a record, so that the server never reports it. Returns the last reported position.
    """
    last, same = -1, 0
    stream.ask_for_position()
    while True:
        got = stream.receive(_POLL_S)
        if got is None:
            continue  # the server decodes a large transaction; a lost connection is an error
        if got.message is not None:
            same = 0
            yield got.message
            continue
        same = same + 1 if got.position == last else 0
        last = got.position
        if last >= upto or same >= _SAME_REPORTS:
            return last
        if same:
            time.sleep(_BETWEEN_REPORTS_S)
        stream.ask_for_position()


def scan(stream: LogStream, ahead: LookAhead, upto: int, *, most: int, enough: int, most_bytes: int) -> None:
    """Note the transactions up to a position. The stream has been started at `ahead.scanned`.

    It stops earlier if `most` messages are known, or `enough` messages and more than `most_bytes` bytes were received.
    """
    begun, inside, messages, size = ahead.scanned, False, 0, 0
    received = _messages(stream, upto)
    while True:
        try:
            message = next(received)
        except StopIteration as ended:
            ahead.reach(ended.value)
            return
        size += len(message)
        if message[:1] == b"I":
            messages += inside
            continue
        found = decode(message)
        if isinstance(found, Begin):
            inside, messages = found.commit >= begun, 0
        elif isinstance(found, Commit) and inside:
            ahead.add(Transaction(found.end, messages, found.at))
            if ahead.messages >= most or (ahead.messages >= enough and size >= most_bytes):
                return


def read_rows(
    stream: LogStream, above: int, upto: int, queues: Mapping[int, str], schema: pa.Schema, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the transactions that committed from `above` on and below `upto`, in the order of the log.

    Args:
        queues: the queue of each table, by OID.
        schema: the wanted columns of a message, and perhaps `queue`.

    Raises:
        DatabaseUnavailable: the server's log ends earlier.
    """
    wanted = [name for name in _TABLE if name in schema.names]
    decoder = Decoder([_TABLE[name] for name in wanted])
    places = [COLUMNS.index(name) for name in wanted]
    blank: list[Any] = [None] * len(COLUMNS)
    blank[COLUMNS.index("recoverable")] = True
    rows: list[tuple] = []
    names: list[str] = []
    size = 0
    for insert in _inserts(stream, above, upto, decoder):
        queue = queues.get(insert.relation)
        if queue is None:
            continue  # a table that somebody added to the publication
        row = blank.copy()
        for place, value in zip(places, decoder.values(insert), strict=True):
            row[place] = value
        rows.append(tuple(row))
        names.append(queue)
        size += len(insert.data)
        if size >= batch_bytes or len(rows) >= _BATCH_ROWS:
            yield _batch(rows, names, schema)
            rows, names, size = [], [], 0
    if rows:
        yield _batch(rows, names, schema)


def _inserts(stream: LogStream, above: int, upto: int, decoder: Decoder) -> Iterator[Insert]:
    inside = False
    received = _messages(stream, upto)
    while True:
        try:
            found = decode(next(received))
        except StopIteration as ended:
            if ended.value < upto:
                raise DatabaseUnavailable(f"The server's log ends at {format_lsn(ended.value)}, below the end of the planned batch ({format_lsn(upto)}).") from None
            return
        if isinstance(found, Insert):
            if inside:
                yield found
        elif isinstance(found, Begin):
            if found.commit >= upto:
                return
            inside = found.commit >= above
        elif isinstance(found, Commit):
            if found.end >= upto:
                return
        elif isinstance(found, Relation):
            decoder.add(found)


def _batch(rows: list[tuple], names: list[str], schema: pa.Schema) -> pa.RecordBatch:
    plain = pa.schema([field for field in schema if field.name != _QUEUE])
    (made,) = batches([rows], plain)
    if _QUEUE not in schema.names:
        return made
    return pa.RecordBatch.from_arrays([pa.array(names, pa.string()) if field.name == _QUEUE else made[field.name] for field in schema], schema=schema)
