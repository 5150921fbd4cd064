"""Name the spans, the meters and their attributes as NServiceBus does, once each.

Values only: no OpenTelemetry is imported here. The names are those of NServiceBus 10, so that its dashboards fit
endpoints of both sides.
"""

from __future__ import annotations

from rowpost.wire.headers import (
    CONTENT_TYPE,
    CONTROL_MESSAGE,
    CONVERSATION_ID,
    CORRELATION_ID,
    DATA_BUS_CONTENT_TYPE,
    DELIVER_AT,
    ENCLOSED_MESSAGE_TYPES,
    HOST_DISPLAY_NAME,
    HOST_ID,
    IS_DEFERRED,
    IS_SAGA_TIMEOUT,
    LICENSE_EXPIRED,
    MESSAGE_ID,
    MESSAGE_INTENT,
    NON_DURABLE,
    NSERVICEBUS_VERSION,
    ORIGINATING_ADDRESS,
    ORIGINATING_ENDPOINT,
    ORIGINATING_HOST_ID,
    ORIGINATING_MACHINE,
    ORIGINATING_SAGA_ID,
    ORIGINATING_SAGA_TYPE,
    PREVIOUS_CONVERSATION_ID,
    PROCESSING_ENDPOINT,
    PROCESSING_MACHINE,
    RELATED_TO,
    REPLY_TO_ADDRESS,
    RETRIES,
    RETRIES_TIMESTAMP,
    SAGA_ID,
    SAGA_TYPE,
    TIME_TO_BE_RECEIVED,
)

__all__ = [
    "DISCRIMINATOR",
    "ERROR_TYPE",
    "EXECUTION_RESULT",
    "HANDLER_SAGA_ID",
    "HANDLER_TYPE",
    "HEADER_ATTRIBUTES",
    "MESSAGE_HANDLER_TYPE",
    "MESSAGE_HANDLER_TYPES",
    "MESSAGE_TYPE",
    "METER",
    "NATIVE_MESSAGE_ID",
    "PROCESS_MESSAGE",
    "QUEUE_NAME",
    "SEND_SPANS",
    "TRACER",
]

#: names and versions of the instrumentation scopes
TRACER = ("NServiceBus.Core", "0.1.0")
METER = ("NServiceBus.Core.Pipeline.Incoming", "0.2.0")

PROCESS_MESSAGE = "process message"
#: by the value of the header MessageIntent
SEND_SPANS = {"Send": "send message", "Publish": "publish event", "Reply": "reply"}

NATIVE_MESSAGE_ID = "nservicebus.native_message_id"
HANDLER_TYPE = "nservicebus.handler.handler_type"
HANDLER_SAGA_ID = "nservicebus.handler.saga_id"

#: the attributes of a span that headers of its message become
HEADER_ATTRIBUTES = {
    SAGA_ID: "nservicebus.saga.saga_id",
    MESSAGE_ID: "nservicebus.message_id",
    CORRELATION_ID: "nservicebus.correlation_id",
    REPLY_TO_ADDRESS: "nservicebus.reply_to_address",
    NSERVICEBUS_VERSION: "nservicebus.version",
    CONTROL_MESSAGE: "nservicebus.control_message",
    SAGA_TYPE: "nservicebus.saga.saga_type",
    ORIGINATING_SAGA_ID: "nservicebus.originating_saga_id",
    ORIGINATING_SAGA_TYPE: "nservicebus.originating_saga_type",
    RETRIES: "nservicebus.delayed_retries",
    RETRIES_TIMESTAMP: "nservicebus.delayed_retries_timestamp",
    DELIVER_AT: "nservicebus.deliver_at",
    RELATED_TO: "nservicebus.related_to",
    ENCLOSED_MESSAGE_TYPES: "nservicebus.enclosed_message_types",
    CONTENT_TYPE: "nservicebus.content_type",
    IS_SAGA_TIMEOUT: "nservicebus.saga.is_timeout",
    IS_DEFERRED: "nservicebus.is_deferred",
    ORIGINATING_ENDPOINT: "nservicebus.originating_endpoint",
    ORIGINATING_MACHINE: "nservicebus.originating_machine",
    ORIGINATING_HOST_ID: "nservicebus.originating_host_id",
    PROCESSING_ENDPOINT: "nservicebus.processing_endpoint",
    PROCESSING_MACHINE: "nservicebus.processing_machine",
    HOST_DISPLAY_NAME: "nservicebus.host.display_name",
    HOST_ID: "nservicebus.host.host_id",
    LICENSE_EXPIRED: "nservicebus.has_license_expired",
    ORIGINATING_ADDRESS: "nservicebus.originating_address",
    CONVERSATION_ID: "nservicebus.conversation_id",
    PREVIOUS_CONVERSATION_ID: "nservicebus.previous_conversation_id",
    MESSAGE_INTENT: "nservicebus.message_intent",
    TIME_TO_BE_RECEIVED: "nservicebus.time_to_be_received",
    DATA_BUS_CONTENT_TYPE: "nservicebus.databus.content_type",
    NON_DURABLE: "nservicebus.non_durable",
}

# -------------------------------------------------------------- tags of meters
DISCRIMINATOR = "nservicebus.discriminator"
QUEUE_NAME = "nservicebus.queue"
MESSAGE_TYPE = "nservicebus.message_type"
MESSAGE_HANDLER_TYPES = "nservicebus.message_handler_types"
MESSAGE_HANDLER_TYPE = "nservicebus.message_handler_type"
EXECUTION_RESULT = "execution.result"
ERROR_TYPE = "error.type"
