"""The message about a change of a saga, as the plugin NServiceBus.SagaAudit sends it to ServiceControl."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from rowpost.wire.message_types import message_type

__all__ = ["SagaChangeInitiator", "SagaChangeOutput", "SagaUpdatedMessage"]


@dataclass(frozen=True)
class SagaChangeInitiator:
    """The message that changed the saga. `time_sent` is the year 1 if its headers do not tell."""

    initiating_message_id: str
    message_type: str
    is_saga_timeout_message: bool
    time_sent: datetime
    originating_machine: str | None
    originating_endpoint: str | None
    intent: str


@dataclass(frozen=True)
class SagaChangeOutput:
    """A message that the saga sent. `destination` is None if it was published."""

    message_type: str
    time_sent: datetime
    delivery_at: datetime | None
    delivery_delay: timedelta | None
    destination: str | None
    resulting_message_id: str
    intent: str


@message_type("ServiceControl.EndpointPlugin.Messages.SagaState.SagaUpdatedMessage")
@dataclass(frozen=True)
class SagaUpdatedMessage:
    """A saga has handled a message. `saga_state` is its state after that, as JSON."""

    saga_state: str
    saga_id: UUID
    initiator: SagaChangeInitiator
    resulting_messages: list[SagaChangeOutput]
    endpoint: str
    is_new: bool
    is_completed: bool
    start_time: datetime
    finish_time: datetime
    saga_type: str
