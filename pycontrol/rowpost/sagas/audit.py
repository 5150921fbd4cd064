"""Report to ServiceControl what each message changed in a saga: the state, the message, and what the saga sent.

`SagaAudit` belongs to the sagas of one endpoint. Until `start` it is off. A report is a call among those that store the
state: it commits with the change and takes no round trip of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from rowpost.database.connection import Connection
from rowpost.errors import DatabaseUnavailable, InvalidSagaState, RowpostError
from rowpost.handling.context import Context
from rowpost.sagas.state import encode_state
from rowpost.transport.directory import Place
from rowpost.wire.headers import (
    CONTROL_MESSAGE,
    ENCLOSED_MESSAGE_TYPES,
    IS_SAGA_TIMEOUT,
    MESSAGE_INTENT,
    ORIGINATING_ENDPOINT,
    ORIGINATING_MACHINE,
    REPLY_TO_ADDRESS,
    SAGA_STATE_CHANGE,
    TIME_SENT,
)
from rowpost.wire.message import encode_headers, parse_timestamp
from rowpost.wire.message_types import split_enclosed_types
from rowpost.wire.outgoing import Outgoing
from rowpost.wire.saga_audit import SagaChangeInitiator, SagaChangeOutput, SagaUpdatedMessage
from rowpost.wire.service_control import report

__all__ = ["InstanceChange", "SagaAudit"]

logger = logging.getLogger("rowpost")
_NO_TIME = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class InstanceChange:
    """What a message did to an instance.

    Attributes:
        saga_type: the saga's name.
        id: the instance.
        state: its state after the handler.
        metadata: its row's, about the message that started it.
        is_new: whether the message started it.
        completed: whether the message completed it.
        started: when its handler started.
        sent: what the handler sent.
    """

    saga_type: str
    id: UUID
    state: Any
    metadata: Mapping[str, str]
    is_new: bool
    completed: bool
    started: datetime
    sent: list[SagaChangeOutput]


class SagaAudit:
    """Reports the changes of the sagas of one endpoint; with an outbox, together with the endpoint's messages."""

    def __init__(self, endpoint: str, *, has_outbox: bool) -> None:
        self._endpoint, self._has_outbox = endpoint, has_outbox
        self._place: Place | None = None
        self._reply_to = ""

    @property
    def on(self) -> bool:
        """Whether changes are reported."""
        return self._place is not None

    def start(self, database: Connection, place: Place, *, reply_to: str) -> None:
        """Report from now on, if ServiceControl's queue can be sent to.

        If not, say so in the log: sagas work without reports.

        The plugin sends a control message to find out. Here its transaction is rolled back, because workers start
        often.

        Args:
            database: a connection without an open transaction.
            place: ServiceControl's queue.
            reply_to: the canonical address of the endpoint's queue.

        Raises:
            DatabaseUnavailable: the connection is lost.
        """
        self._place, self._reply_to = None, reply_to
        probe = {CONTROL_MESSAGE: "True", MESSAGE_INTENT: "Send", REPLY_TO_ADDRESS: reply_to}
        try:
            database.call_all([place.send({"headers": encode_headers(probe), "body": b""})], begin=True)
        except DatabaseUnavailable:
            raise
        except RowpostError as error:
            logger.warning(
                "Changes of the sagas of %s are not reported to ServiceControl until this worker starts again: %s",
                self._endpoint,
                error,
            )
        else:
            self._place = place
        if not database.closed:
            database.rollback()

    def report_of(self, change: InstanceChange, context: Context, message_type: str) -> list[Outgoing]:
        """Return the call or the message that reports a change, and note the change in the message's audit copy.

        Args:
            change: what the message did.
            context: of the message.
            message_type: the type that the saga's handler is declared for.
        """
        if self._place is None:
            return []
        headers = context.incoming.headers
        what = "Completed" if change.completed else "New" if change.is_new else "Updated"
        earlier = context.audit_headers.get(SAGA_STATE_CHANGE) or headers.get(SAGA_STATE_CHANGE)
        context.audit_headers[SAGA_STATE_CHANGE] = ";".join(filter(None, [earlier, f"{change.id}:{what}"]))
        message = SagaUpdatedMessage(
            saga_state=_state(change),
            saga_id=change.id,
            initiator=_initiator(context, message_type),
            resulting_messages=change.sent,
            endpoint=self._endpoint,
            is_new=change.is_new,
            is_completed=change.completed,
            start_time=change.started,
            finish_time=datetime.now(UTC),
            saga_type=change.saga_type,
        )
        sent = report(message, queue=self._place.name, reply_to=self._reply_to, time_to_be_received=None)
        if self._has_outbox:
            return [sent]
        return [self._place.send({"headers": encode_headers(sent.headers), "body": sent.body})]


def _state(change: InstanceChange) -> str:
    """Return the state as JSON, with the properties that each saga of NServiceBus has."""
    fields: dict[str, Any] = {}
    try:
        fields = msgspec.json.decode(
            encode_state(change.state, f"{change.saga_type} {change.id}"), type=dict[str, msgspec.Raw]
        )
    except InvalidSagaState as error:
        if not change.completed:
            raise
        logger.warning("The state of a completed saga is not reported to ServiceControl: %s", error)
    more = {
        "Id": change.id,
        "Originator": change.metadata.get("Originator"),
        "OriginalMessageId": change.metadata.get("OriginalMessageId"),
    }
    return msgspec.json.encode(
        {**fields, **{name: value for name, value in more.items() if name not in fields}}
    ).decode()


def _initiator(context: Context, message_type: str) -> SagaChangeInitiator:
    headers = context.incoming.headers
    try:
        sent = parse_timestamp(headers.get(TIME_SENT) or "")
    except ValueError:  # another sender's format, or none
        sent = _NO_TIME
    return SagaChangeInitiator(
        initiating_message_id=context.message_id,
        message_type=next(iter(split_enclosed_types(headers.get(ENCLOSED_MESSAGE_TYPES))), message_type),
        is_saga_timeout_message=(headers.get(IS_SAGA_TIMEOUT) or "").lower() == "true",
        time_sent=sent,
        originating_machine=headers.get(ORIGINATING_MACHINE),
        originating_endpoint=headers.get(ORIGINATING_ENDPOINT),
        intent=headers.get(MESSAGE_INTENT) or "Send",
    )
