"""Messages as Arrow batches: what Spark takes from a Python source without a look at single rows."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

__all__ = ["COLUMNS", "batches"]

#: the columns of read_range and read_spool, in the contract's order
COLUMNS = ("id", "correlation_id", "reply_to_address", "recoverable", "expires", "headers", "body", "row_version")


def batches(chunks: Iterable[pa.RecordBatch | list[tuple]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """One batch a chunk, with the columns of the schema, which are some of COLUMNS."""
    for chunk in chunks:
        column = _packed(chunk) if isinstance(chunk, pa.RecordBatch) else _plain(chunk)
        yield pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)


def _packed(chunk: pa.RecordBatch) -> Callable[[pa.Field], pa.Array]:
    return lambda field: chunk.column(field.name).cast(field.type)


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
