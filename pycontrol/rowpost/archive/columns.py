"""Define the columns of messages and of an archive, for every program that writes or reads one.

`Columns` describes a table. Its JSON is that of Delta's log and of Spark's schemas; `arrow` gives the columns of Arrow batches.
All times are UTC. Headers and bodies are kept unchanged in addition to the parsed columns.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

__all__ = ["ARCHIVE", "ESSENTIAL", "MESSAGE", "PARSED", "PARTITIONS", "Column", "Columns", "Schema"]

#: The columns that are folders of a table.
PARTITIONS = ("queue", "day")
_ARROW = {
    "string": pa.string(), "boolean": pa.bool_(), "timestamp": pa.timestamp("us", "UTC"), "binary": pa.binary(), "long": pa.int64(), "date": pa.date32(),
}  # fmt: skip


class Schema(Protocol):
    """Columns of a table, whoever defines them: `Columns`, or a StructType of Spark."""

    def json(self) -> str:
        """Return the columns in the form of Delta's log."""


@dataclass(frozen=True)
class Column:
    """A column. `kind` is a name of a type in Delta's log."""

    name: str
    kind: str
    comment: str = ""
    nullable: bool = True


@dataclass(frozen=True)
class Columns:
    """The columns of a table or of a batch."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.columns)

    def json(self) -> str:
        """Return the columns in the form of Delta's log."""
        fields = [
            {"name": each.name, "type": each.kind, "nullable": each.nullable, "metadata": {"comment": each.comment} if each.comment else {}}
            for each in self.columns
        ]
        return json.dumps({"type": "struct", "fields": fields})

    def arrow(self) -> pa.Schema:
        """Return the columns of Arrow batches."""
        return pa.schema([pa.field(each.name, _ARROW[each.kind], each.nullable) for each in self.columns])


#: A message as it is stored in its queue.
MESSAGE = Columns(
    (
        Column("id", "string"),
        Column("correlation_id", "string"),
        Column("reply_to_address", "string"),
        Column("recoverable", "boolean"),
        Column("expires", "timestamp"),
        Column("headers", "string", nullable=False),
        Column("body", "binary"),
        Column("row_version", "long", nullable=False),
    )
)

#: The columns that are parsed from headers.
PARSED = Columns(
    (
        Column("headers_valid", "boolean", "whether the headers could be read; if not, the columns below are null", False),
        Column("message_id", "string", "NServiceBus.MessageId; the row's id if the header is missing"),
        Column("conversation_id", "string", "NServiceBus.ConversationId"),
        Column("related_to", "string", "NServiceBus.RelatedTo: the message whose handler sent this one"),
        Column("intent", "string", "NServiceBus.MessageIntent: Send, Publish, Reply, …"),
        Column("message_type", "string", "the first of NServiceBus.EnclosedMessageTypes, without its assembly"),
        Column("sending_endpoint", "string", "NServiceBus.OriginatingEndpoint"),
        Column("endpoint", "string", "NServiceBus.ProcessingEndpoint; if missing, the table of the failed queue"),
        Column("sending_machine", "string", "NServiceBus.OriginatingMachine"),
        Column("machine", "string", "NServiceBus.ProcessingMachine"),
        Column("time_sent", "timestamp", "NServiceBus.TimeSent"),
        Column("processing_started", "timestamp", "NServiceBus.ProcessingStarted"),
        Column("processing_ended", "timestamp", "NServiceBus.ProcessingEnded"),
        Column("deliver_at", "timestamp", "NServiceBus.DeliverAt, of delayed messages"),
        Column("content_type", "string", "NServiceBus.ContentType"),
        Column("exception_type", "string", "NServiceBus.ExceptionInfo.ExceptionType"),
        Column("exception_message", "string", "NServiceBus.ExceptionInfo.Message"),
        Column("failed_queue", "string", "NServiceBus.FailedQ: the address of the queue where it failed"),
        Column("time_of_failure", "timestamp", "NServiceBus.TimeOfFailure"),
        Column("body_bytes", "long", "size of the body in bytes; 0 for none", False),
    )
)

#: Columns that archives of every version have.
ESSENTIAL = ("id", "headers", "body", "row_version")

#: The columns of an archive. The columns queue and day are folders.
ARCHIVE = Columns(
    (
        *MESSAGE.columns,
        *PARSED.columns,
        Column("archived_at", "timestamp", "when its batch was read", False),
        Column("queue", "string", "the queue it was read from (partition)", False),
        Column("day", "date", "of processing_ended, else time_of_failure, else time_sent, else archived_at (partition)", False),
    )
)
