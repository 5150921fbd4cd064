"""The columns of everything that the source reads and the pipelines write: one place, documented, tested.

Names are snake_case on both engines. All times are UTC. Headers and bodies stand verbatim beside what was parsed.
"""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

__all__ = ["MESSAGE"]

#: a message as it lies in its queue
MESSAGE = StructType([
    StructField("id", StringType()),
    StructField("correlation_id", StringType()),
    StructField("reply_to_address", StringType()),
    StructField("recoverable", BooleanType()),
    StructField("expires", TimestampType()),
    StructField("headers", StringType(), nullable=False),
    StructField("body", BinaryType()),
    StructField("row_version", LongType(), nullable=False),
])
