"""What differs between the versions of Spark that rowpost runs on: 4.0 to 4.3. Features are looked for, versions are not compared.

Spark 4.0 has no push-down of filters, and no stream writer that takes Arrow batches. Spark 4.0 and 4.1 do not tell a Python stream
where a batch begins, how many rows it may have, and that the run ends (admission control, AvailableNow). source/self_planned.py
does this. Spark 4.0 and 4.1 also ignore what a stream reports of its lag.

    reader = spark.readStream.format("rowpost").options(queue="audit", **stream_options(ends=True))
    query = start_query(reader.load().writeStream.format("noop").option("checkpointLocation", "checkpoint"), every=None)
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import datasource, functions
from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

__all__ = [
    "HAS_ADMISSION_CONTROL", "HAS_FILTERS", "HAS_SKETCHES", "EqualTo", "Filter", "GreaterThan", "GreaterThanOrEqual", "In", "LessThan", "LessThanOrEqual",
    "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "StreamArrowWriter", "StringContains", "SupportsTriggerAvailableNow", "arrow_schema", "register", "start_query", "stream_options",
]  # fmt: skip

#: Spark 4.0 has no sketches of percentiles and no approximate counts of frequent values
HAS_SKETCHES = hasattr(functions, "kll_sketch_agg_double")

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

    HAS_ADMISSION_CONTROL = True
except ModuleNotFoundError:  # Spark 4.0 and 4.1
    HAS_ADMISSION_CONTROL = False

    class ReadLimit:  # type: ignore[no-redef]
        """How much a batch may have."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """All that is there."""

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """At most so many rows."""

        max_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A stream that can end."""


try:
    from pyspark.sql.datasource import (
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
        StringContains,
    )

    HAS_FILTERS = True
except ImportError:  # Spark 4.0 asks no source for the filters that it can apply
    HAS_FILTERS = False

    class Filter:  # type: ignore[no-redef]
        """A condition that Spark never passes to a source."""

    EqualTo = GreaterThan = GreaterThanOrEqual = In = LessThan = LessThanOrEqual = StringContains = Filter  # type: ignore[misc, assignment]

if hasattr(datasource, "DataSourceStreamArrowWriter"):
    StreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:  # Spark 4.0 passes Arrow batches to each writer that is a DataSourceArrowWriter, those of streams too

    class StreamArrowWriter(DataSourceArrowWriter, datasource.DataSourceStreamWriter):  # type: ignore[no-redef, misc]
        """A writer of streams that takes Arrow batches."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """Convert columns to those of the Arrow batches that Spark accepts. Times are in UTC."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # Spark 4.0 and 4.1 know only UTC
        return to_arrow_schema(schema)


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source. Spark 4.0 refuses one that it has found by itself."""
    try:
        spark.dataSource.register(source)
    except Exception as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def stream_options(*, ends: bool) -> dict[str, str]:
    """Return the options that a stream's reader needs with this version of Spark.

    Args:
        ends: the stream reads what is there when it starts, and ends.
    """
    return {"availableNow": "true"} if ends and not HAS_ADMISSION_CONTROL else {}


def start_query(writer: DataStreamWriter, every: str | None) -> StreamingQuery:
    """Start a stream whose reader has `stream_options`.

    Args:
        writer: the stream, without a trigger.
        every: the interval between batches, such as "10 seconds". If it is None, the stream reads what is there, and ends.
    """
    if every is not None:
        return writer.trigger(processingTime=every).start()
    if HAS_ADMISSION_CONTROL:
        return writer.trigger(availableNow=True).start()
    query = writer.trigger(processingTime="0 seconds").start()
    threading.Thread(target=_stop_at_end, args=(query,), daemon=True).start()
    return query


def _stop_at_end(query: StreamingQuery) -> None:
    """Stop a stream when a batch has found nothing more. The source reads nothing that came after its start."""
    with suppress(Exception):  # whoever waits for the query gets its error
        query.processAllAvailable()
        query.stop()
