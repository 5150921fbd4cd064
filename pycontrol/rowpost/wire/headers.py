"""Name the headers that rowpost reads or writes, once each.

The names are those of NServiceBus and ServiceControl, so that endpoints on both sides understand each other's messages.
A constant is the name without its prefix; `EXCEPTION_INFO` and `BRIDGE_INFO` are common beginnings of several names.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "BAGGAGE",
    "BRIDGE_FAILED_QUEUE",
    "BRIDGE_INFO",
    "BRIDGE_TRANSFER",
    "CALLBACK_QUEUE",
    "CONTENT_TYPE",
    "CONTROL_MESSAGE",
    "CONVERSATION_ID",
    "CORRELATION_ID",
    "DATA_BUS_CONTENT_TYPE",
    "DELIVER_AT",
    "EDIT_OF",
    "ENCLOSED_MESSAGE_TYPES",
    "EXCEPTION_DATA",
    "EXCEPTION_INFO",
    "EXCEPTION_MESSAGE",
    "EXCEPTION_STACK_TRACE",
    "EXCEPTION_TYPE",
    "FAILED_QUEUE",
    "FORWARD_DESTINATION",
    "HOST_DISPLAY_NAME",
    "HOST_ID",
    "IMMEDIATE_RETRIES",
    "INVOKED_SAGAS",
    "IS_DEFERRED",
    "IS_SAGA_TIMEOUT",
    "LICENSE_EXPIRED",
    "MESSAGE_ID",
    "MESSAGE_INTENT",
    "METRIC_INSTANCE_ID",
    "METRIC_TYPE",
    "NON_DURABLE",
    "NSERVICEBUS_VERSION",
    "ORIGINATING_ADDRESS",
    "ORIGINATING_ENDPOINT",
    "ORIGINATING_HOST_ID",
    "ORIGINATING_MACHINE",
    "ORIGINATING_SAGA_ID",
    "ORIGINATING_SAGA_TYPE",
    "PREVIOUS_CONVERSATION_ID",
    "PROCESSING_ENDED",
    "PROCESSING_ENDPOINT",
    "PROCESSING_MACHINE",
    "PROCESSING_STARTED",
    "RELATED_TO",
    "REPLY_TO_ADDRESS",
    "RETRIES",
    "RETRIES_TIMESTAMP",
    "RETRY_ACKNOWLEDGEMENT_QUEUE",
    "RETRY_ACKNOWLEDGEMENT_SENT",
    "RETRY_SUCCESSFUL",
    "RETRY_UNIQUE_MESSAGE_ID",
    "RETURN_CODE",
    "SAGA_ID",
    "SAGA_STATE_CHANGE",
    "SAGA_TYPE",
    "SCHEDULE",
    "SCHEDULE_DUE",
    "START_NEW_TRACE",
    "SUBSCRIBER_ADDRESS",
    "SUBSCRIBER_ENDPOINT",
    "SUBSCRIPTION_MESSAGE_TYPE",
    "TIME_OF_FAILURE",
    "TIME_SENT",
    "TIME_TO_BE_RECEIVED",
    "TRACE_PARENT",
    "TRACE_STATE",
    "W3C_TRACE",
    "is_reply",
    "saga_of_the_request",
]

BRIDGE_FAILED_QUEUE = "NServiceBus.MessagingBridge.FailedQ"
#: the common beginning of the headers that describe a failure of the bridge; the same names without it describe a
#: handler's failure
BRIDGE_INFO = "NServiceBus.MessagingBridge."
BRIDGE_TRANSFER = "NServiceBus.Bridge.Transfer"
#: the 2.x transport of SQL Server names the queue of the waiting process in it
CALLBACK_QUEUE = "NServiceBus.SqlServer.CallbackQueue"
CONTENT_TYPE = "NServiceBus.ContentType"
CONTROL_MESSAGE = "NServiceBus.ControlMessage"
CONVERSATION_ID = "NServiceBus.ConversationId"
CORRELATION_ID = "NServiceBus.CorrelationId"
DATA_BUS_CONTENT_TYPE = "NServiceBus.DataBusConfig.ContentType"
DELIVER_AT = "NServiceBus.DeliverAt"
ENCLOSED_MESSAGE_TYPES = "NServiceBus.EnclosedMessageTypes"
EXCEPTION_DATA = "NServiceBus.ExceptionInfo.Data"
EXCEPTION_INFO = "NServiceBus.ExceptionInfo."
EXCEPTION_MESSAGE = "NServiceBus.ExceptionInfo.Message"
EXCEPTION_STACK_TRACE = "NServiceBus.ExceptionInfo.StackTrace"
EXCEPTION_TYPE = "NServiceBus.ExceptionInfo.ExceptionType"
FAILED_QUEUE = "NServiceBus.FailedQ"
FORWARD_DESTINATION = "NServiceBus.SqlServer.ForwardDestination"
IMMEDIATE_RETRIES = "NServiceBus.FLRetries"
INVOKED_SAGAS = "NServiceBus.InvokedSagas"
IS_DEFERRED = "NServiceBus.IsDeferredMessage"
IS_SAGA_TIMEOUT = "NServiceBus.IsSagaTimeoutMessage"
MESSAGE_ID = "NServiceBus.MessageId"
MESSAGE_INTENT = "NServiceBus.MessageIntent"
METRIC_INSTANCE_ID = "NServiceBus.Metric.InstanceId"
METRIC_TYPE = "NServiceBus.Metric.Type"
NON_DURABLE = "NServiceBus.NonDurableMessage"
NSERVICEBUS_VERSION = "NServiceBus.Version"
ORIGINATING_ADDRESS = "NServiceBus.OriginatingAddress"
ORIGINATING_ENDPOINT = "NServiceBus.OriginatingEndpoint"
ORIGINATING_MACHINE = "NServiceBus.OriginatingMachine"
ORIGINATING_SAGA_ID = "NServiceBus.OriginatingSagaId"
ORIGINATING_SAGA_TYPE = "NServiceBus.OriginatingSagaType"
PREVIOUS_CONVERSATION_ID = "NServiceBus.PreviousConversationId"
PROCESSING_ENDED = "NServiceBus.ProcessingEnded"
PROCESSING_ENDPOINT = "NServiceBus.ProcessingEndpoint"
PROCESSING_MACHINE = "NServiceBus.ProcessingMachine"
PROCESSING_STARTED = "NServiceBus.ProcessingStarted"
RELATED_TO = "NServiceBus.RelatedTo"
REPLY_TO_ADDRESS = "NServiceBus.ReplyToAddress"
RETRIES = "NServiceBus.Retries"
RETRIES_TIMESTAMP = "NServiceBus.Retries.Timestamp"
RETURN_CODE = "NServiceBus.ReturnMessage.ErrorCode"
SAGA_ID = "NServiceBus.SagaId"
SAGA_TYPE = "NServiceBus.SagaType"
START_NEW_TRACE = "NServiceBus.OpenTelemetry.StartNewTrace"
SUBSCRIBER_ADDRESS = "NServiceBus.SubscriberAddress"
SUBSCRIBER_ENDPOINT = "NServiceBus.SubscriberEndpoint"
SUBSCRIPTION_MESSAGE_TYPE = "SubscriptionMessageType"
TIME_OF_FAILURE = "NServiceBus.TimeOfFailure"
TIME_SENT = "NServiceBus.TimeSent"
TIME_TO_BE_RECEIVED = "NServiceBus.TimeToBeReceived"

EDIT_OF = "ServiceControl.EditOf"
RETRY_ACKNOWLEDGEMENT_QUEUE = "ServiceControl.Retry.AcknowledgementQueue"
RETRY_ACKNOWLEDGEMENT_SENT = "ServiceControl.Retry.AcknowledgementSent"
RETRY_SUCCESSFUL = "ServiceControl.Retry.Successful"
RETRY_UNIQUE_MESSAGE_ID = "ServiceControl.Retry.UniqueMessageId"
SAGA_STATE_CHANGE = "ServiceControl.SagaStateChange"

SCHEDULE = "rowpost.Schedule"
SCHEDULE_DUE = "rowpost.ScheduleDue"

BAGGAGE = "baggage"
TRACE_PARENT = "traceparent"
TRACE_STATE = "tracestate"
#: the headers of a trace
W3C_TRACE = (TRACE_PARENT, TRACE_STATE, BAGGAGE)

HOST_DISPLAY_NAME = "$.diagnostics.hostdisplayname"
HOST_ID = "$.diagnostics.hostid"
LICENSE_EXPIRED = "$.diagnostics.license.expired"
ORIGINATING_HOST_ID = "$.diagnostics.originating.hostid"


def is_reply(headers: Mapping[str, str | None]) -> bool:
    """Return whether a message replies to another one: NServiceBus before version 5 wrote no intent that says so.

    >>> is_reply({MESSAGE_INTENT: "Reply"}), is_reply({MESSAGE_INTENT: "Send"}), is_reply({NSERVICEBUS_VERSION: "4.7"})
    (True, False, True)
    """
    major = (headers.get(NSERVICEBUS_VERSION) or "").partition(".")[0]
    return (headers.get(MESSAGE_INTENT) or "").casefold() == "reply" or major in ("2", "3", "4")


def saga_of_the_request(headers: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the headers of a reply that name the saga which sent the request, so that the reply finds it."""
    pairs = ((SAGA_ID, ORIGINATING_SAGA_ID), (SAGA_TYPE, ORIGINATING_SAGA_TYPE))
    return {ours: headers[theirs] for ours, theirs in pairs if headers.get(theirs)}
