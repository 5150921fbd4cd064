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
#: after a silence of so long, the server is asked for its position. If it reports the same one promptly and so many times, it has
#: sent all that is durable: in between, it would have decoded at least one more record
_SILENCE_S, _PROMPT_S, _SAME_REPORTS = 0.05, 1.0, 3


def _messages(stream: LogStream, upto: int) -> Generator[bytes, None, int]:
    """Yield messages until the server has sent all transactions that committed below a position, or all that are durable.

    The server reports its position when it has sent all. The end of what is durable may lie within a record, so that this position is
    below `upto`: then it is asked several times. Returns the last reported position.
    """
    last, same = 0, 0
    asked_at: float | None = None
    while True:
        got = stream.receive(_SILENCE_S)
        if got is None:  # a server that decodes a large transaction of other tables answers later; a lost connection is an error
            if asked_at is None:
                stream.ask_for_position()
                asked_at = time.monotonic()
        elif got.message is not None:
            same = 0
            yield got.message
        else:
            idle = asked_at is not None and time.monotonic() - asked_at < _PROMPT_S
            same = same + 1 if idle and got.position == last else 0
            last, asked_at = max(last, got.position), None
            if last >= upto or same >= _SAME_REPORTS:
                return last


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


def read_rows(stream: LogStream, above: int, upto: int, queues: Mapping[int, str], schema: pa.Schema, batch_bytes: int) -> Iterator[pa.RecordBatch]:
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
                raise DatabaseUnavailable(
                    f"The server's log ends at {format_lsn(ended.value)}, below the end of the planned batch ({format_lsn(upto)})."
                ) from None
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
