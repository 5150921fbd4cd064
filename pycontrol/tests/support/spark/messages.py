"""Create messages of audit and error queues, for tests without a database."""

import json
from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import UUID

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from rowpost.spark.archive.schemas import MESSAGE, arrow_schema
from rowpost.wire.message import format_timestamp

__all__ = ["NOON", "audit_row", "error_row", "messages", "raw"]

NOON = datetime(2024, 5, 17, 12, 0, tzinfo=UTC)
_numbers = count(1)


def raw(headers: str, body: bytes | None = b"{}", number: int | None = None) -> tuple:
    """Create a row of a queue with the given header text."""
    number = number or next(_numbers)
    return (str(UUID(int=number)), None, None, True, None, headers, body, number)


def audit_row(
    message_id: str = "m",
    *,
    sent: datetime = NOON,
    waited: float = 1.0,
    took: float = 0.5,
    body: bytes | None = b"{}",
    **headers: str | None,
) -> tuple:
    """Create a row of a handled message. Times are in seconds.

    The prefix `NServiceBus.` is added to headers that start with an upper-case letter. None removes a header.
    """
    started = sent + timedelta(seconds=waited)
    own = {
        "MessageId": message_id,
        "ConversationId": "c1",
        "MessageIntent": "Send",
        "EnclosedMessageTypes": "Shop.PlaceOrder, Shop, Version=1.0.0.0",
        "OriginatingEndpoint": "Web",
        "ProcessingEndpoint": "Sales",
        "TimeSent": format_timestamp(sent),
        "ProcessingStarted": format_timestamp(started),
        "ProcessingEnded": format_timestamp(started + timedelta(seconds=took)),
        **headers,
    }
    return raw(
        json.dumps(
            {
                name if name[0].islower() else f"NServiceBus.{name}": value
                for name, value in own.items()
                if value is not None
            }
        ),
        body,
    )


def error_row(message_id: str = "m", *, at: datetime = NOON, **headers: str | None) -> tuple:
    """Create a row of a failed message."""
    failure = {
        "ProcessingStarted": None,
        "ProcessingEnded": None,
        "FailedQ": "Sales@[public]",
        "TimeOfFailure": format_timestamp(at),
        "ExceptionInfo.ExceptionType": "builtins.ValueError",
        "ExceptionInfo.Message": "no such article",
        "ExceptionInfo.StackTrace": "line 12, in place_order",
    }
    return audit_row(message_id, sent=at - timedelta(seconds=5), **{**failure, **headers})


def messages(spark: SparkSession, *rows: tuple) -> DataFrame:
    """Create a DataFrame like that of the data source. From rows of Python, Spark would make it in a Python process each time that it is read."""
    columns = zip(*rows, strict=True) if rows else [()] * len(MESSAGE)
    schema = arrow_schema(MESSAGE)
    table = pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
    return spark.createDataFrame(table, MESSAGE)
