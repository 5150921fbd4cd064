"""Messages as Arrow batches: what Spark takes from a Python source without a look at single rows.

PostgreSQL's rows arrive as memory (dialects.copying): numbers are gathered from it by numpy, headers and bodies by
Arrow, each for all rows of a chunk at once. Other engines' rows are tuples.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from rowpost.dialects import Chunk

__all__ = ["COLUMNS", "batches"]

#: the columns of read_range and read_spool, in the contract's order
COLUMNS = ("id", "correlation_id", "reply_to_address", "recoverable", "expires", "headers", "body", "row_version")
_RECORD = 10  # bytes before a row's first column: columns of the tuple, length of the record, columns of the record
_FIELD = 8  # a column's type and length
_POSTGRESQL_EPOCH = 946_684_800_000_000  # microseconds from 1970 to 2000
_HEX = np.frombuffer(b"".join(b"%02x" % octet for octet in range(256)), dtype="u2")  # two digits an octet
_GROUPS = ((0, 4, 0), (4, 6, 9), (6, 8, 14), (8, 10, 19), (10, 16, 24))  # of a uuid: first and last octet, place in the text
_UUID_TEXT = 36


def batches(chunks: Iterable[Chunk | list[tuple]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """One batch a chunk, with the columns of the schema, which are some of COLUMNS."""
    for chunk in chunks:
        columns = _packed(chunk) if isinstance(chunk, Chunk) else _plain(chunk)
        yield pa.RecordBatch.from_arrays([columns(field) for field in schema], schema=schema)


def _plain(rows: list[tuple]) -> Callable[[pa.Field], pa.Array]:
    values = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))

    def column(field: pa.Field) -> pa.Array:
        found = values[field.name]
        if field.name == "id":
            found = [str(value) for value in found]
        elif field.name == "expires":
            found = [None if value is None else value.replace(tzinfo=datetime.UTC) for value in found]
        return pa.array(found, type=field.type)

    return column


def _packed(chunk: Chunk) -> Callable[[pa.Field], pa.Array]:
    octets = np.frombuffer(chunk.data, dtype="u1")
    spans: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    place = np.frombuffer(chunk.starts, dtype="i8") + _RECORD
    for name in COLUMNS:
        lengths = _gather(octets, place + 4, ">i4").astype("i8")
        spans[name] = place + _FIELD, lengths
        place = place + _FIELD + np.maximum(lengths, 0)

    def column(field: pa.Field) -> pa.Array:
        starts, lengths = spans[field.name]
        return _MAKERS[field.name](octets, starts, lengths).cast(field.type)

    return column


def _gather(octets: np.ndarray, starts: np.ndarray, kind: str) -> np.ndarray:
    """A value of numpy's type `kind` from each place on: the memory is seen as one that begins at every octet."""
    width = np.dtype(kind).itemsize
    return np.ndarray((len(octets) - width + 1,), kind, octets, strides=(1,))[starts]


def _ids(octets: np.ndarray, starts: np.ndarray, _: np.ndarray) -> pa.Array:
    digits = _HEX[_gather(octets, starts, "V16").view("u1")].view("u1").reshape(-1, 32)
    text = np.full((len(starts), _UUID_TEXT), ord("-"), dtype="u1")
    for first, last, at in _GROUPS:
        text[:, at : at + 2 * (last - first)] = digits[:, 2 * first : 2 * last]
    offsets = np.arange(len(starts) + 1, dtype="i4") * _UUID_TEXT
    return pa.StringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(text))


def _numbers(octets: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> pa.Array:
    missing = lengths < 0
    if missing.all():
        return pa.nulls(len(starts), pa.int64())
    found = _gather(octets, np.where(missing, 0, starts), ">i8").astype("i8")
    return pa.array(found, mask=missing)


def _times(octets: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> pa.Array:
    if (lengths < 0).all():
        return pa.nulls(len(starts), pa.timestamp("us", "UTC"))
    missing = lengths < 0
    found = _gather(octets, np.where(missing, 0, starts), ">i8").astype("i8") + _POSTGRESQL_EPOCH
    return pa.array(found, mask=missing).cast(pa.timestamp("us", "UTC"))


def _flags(octets: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> pa.Array:
    missing = lengths < 0
    return pa.array(octets[np.where(missing, 0, starts)] == 1, mask=missing)


def _bytes(octets: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """Every second one of the pieces into which the columns' starts and ends cut the memory."""
    count = len(starts)
    missing = lengths < 0
    if missing.all():
        return pa.nulls(count, pa.binary())
    cuts = np.empty(2 * count, dtype="i4")
    cuts[0::2] = starts
    cuts[1::2] = starts + np.maximum(lengths, 0)
    pieces = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(cuts), pa.py_buffer(octets)]
    )
    wanted = np.arange(0, 2 * count - 1, 2, dtype="i4")
    return pieces.take(pa.array(wanted, mask=missing if missing.any() else None))


def _texts(octets: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> pa.Array:
    found = _bytes(octets, starts, lengths)
    return pa.StringArray.from_buffers(len(found), *found.buffers()[1:], found.buffers()[0], found.null_count) \
        if found.type == pa.binary() and found.null_count < len(found) else pa.nulls(len(found), pa.string())


_MAKERS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], Any]] = {
    "id": _ids,
    "correlation_id": _texts,
    "reply_to_address": _texts,
    "recoverable": _flags,
    "expires": _times,
    "headers": _texts,
    "body": _bytes,
    "row_version": _numbers,
}
