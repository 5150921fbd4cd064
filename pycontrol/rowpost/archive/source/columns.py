"""Convert messages to Arrow batches, which Spark accepts from a Python source without handling single rows."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

__all__ = ["COLUMNS", "batches"]

#: Columns of read_range and read_spool, in the contract's order.
COLUMNS = ("id", "correlation_id", "reply_to_address", "recoverable", "expires", "headers", "body", "row_version")


def batches(chunks: Iterable[pa.RecordBatch | list[tuple]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield one batch for each chunk, with the columns of `schema`, a subset of COLUMNS."""
    for chunk in chunks:
        column = _from_arrow(chunk) if isinstance(chunk, pa.RecordBatch) else _from_rows(chunk)
        yield pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)


def _from_arrow(chunk: pa.RecordBatch) -> Callable[[pa.Field], pa.Array]:
    return lambda field: chunk.column(field.name).cast(field.type)


def _from_rows(rows: list[tuple]) -> Callable[[pa.Field], pa.Array]:
    values = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))

    def column(field: pa.Field) -> pa.Array:
        found: Sequence[Any] = values[field.name]
        if field.name == "id":
            found = [str(value) for value in found]
        elif field.name == "expires":
            found = [None if value is None else value.replace(tzinfo=datetime.UTC) for value in found]
        return pa.array(found, type=field.type)

    return column
