"""Define the columns of messages and of an archive, for every program that writes or reads one.

A table's columns are a schema of pyarrow, whose fields have their comments as metadata. All times are UTC. Headers and
bodies are kept unchanged in addition to the parsed columns.
"""

from __future__ import annotations

import pyarrow as pa

__all__ = ["ARCHIVE", "ESSENTIAL", "MESSAGE", "PARSED", "PARTITIONS"]

#: The columns that are folders of a table.
PARTITIONS = ("queue", "day")
_TEXT, _FLAG, _TIME, _BYTES, _COUNT = pa.string(), pa.bool_(), pa.timestamp("us", "UTC"), pa.binary(), pa.int64()


def _column(name: str, kind: pa.DataType, comment: str = "", nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable, {"comment": comment} if comment else None)


#: A message as it is stored in its queue.
MESSAGE = pa.schema(
    [
        _column("id", _TEXT),
        _column("correlation_id", _TEXT),
        _column("reply_to_address", _TEXT),
        _column("recoverable", _FLAG),
        _column("expires", _TIME),
        _column("headers", _TEXT, nullable=False),
        _column("body", _BYTES),
        _column("row_version", _COUNT, nullable=False),
    ]
)

#: The columns that are parsed from headers.
PARSED = pa.schema(
    [
        _column("headers_valid", _FLAG, "whether the headers could be read; if not, the columns below are null", False),
        _column("message_id", _TEXT, "NServiceBus.MessageId; the row's id if the header is missing"),
        _column("conversation_id", _TEXT, "NServiceBus.ConversationId"),
        _column("related_to", _TEXT, "NServiceBus.RelatedTo: the message whose handler sent this one"),
        _column("intent", _TEXT, "NServiceBus.MessageIntent: Send, Publish, Reply, …"),
        _column("message_type", _TEXT, "the first of NServiceBus.EnclosedMessageTypes, without its assembly"),
        _column("sending_endpoint", _TEXT, "NServiceBus.OriginatingEndpoint"),
        _column("endpoint", _TEXT, "NServiceBus.ProcessingEndpoint; if missing, the table of the failed queue"),
        _column("sending_machine", _TEXT, "NServiceBus.OriginatingMachine"),
        _column("machine", _TEXT, "NServiceBus.ProcessingMachine"),
        _column("time_sent", _TIME, "NServiceBus.TimeSent"),
        _column("processing_started", _TIME, "NServiceBus.ProcessingStarted"),
        _column("processing_ended", _TIME, "NServiceBus.ProcessingEnded"),
        _column("deliver_at", _TIME, "NServiceBus.DeliverAt, of delayed messages"),
        _column("content_type", _TEXT, "NServiceBus.ContentType"),
        _column("exception_type", _TEXT, "NServiceBus.ExceptionInfo.ExceptionType"),
        _column("exception_message", _TEXT, "NServiceBus.ExceptionInfo.Message"),
        _column("failed_queue", _TEXT, "NServiceBus.FailedQ: the address of the queue where it failed"),
        _column("time_of_failure", _TIME, "NServiceBus.TimeOfFailure"),
        _column("body_bytes", _COUNT, "size of the body in bytes; 0 for none", False),
    ]
)

#: Columns that archives of every version have.
ESSENTIAL = ("id", "headers", "body", "row_version")

#: The columns of an archive. The columns queue and day are folders.
ARCHIVE = pa.schema(
    [
        *MESSAGE,
        *PARSED,
        _column("archived_at", _TIME, "when its batch was read", False),
        _column("queue", _TEXT, "the queue it was read from (partition)", False),
        _column(
            "day",
            pa.date32(),
            "of processing_ended, else time_of_failure, else time_sent, else archived_at (partition)",
            False,
        ),
    ]
)
