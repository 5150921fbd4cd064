"""Read what is known of one message, of a conversation and of a saga's instance, for the pages that follow messages."""

from __future__ import annotations

from dataclasses import asdict

from rowpost.dashboard import documents as made
from rowpost.dashboard.reading import saga_instance
from rowpost.database.connection import Connection
from rowpost.endpoint.message_life import Conversation, MessageLife, conversation, message_life
from rowpost.errors import FeatureMissing, PermissionDenied
from rowpost.settings.environment import Settings
from rowpost.transport.delayed_messages import DelayedMessages
from rowpost.wire.conversation import ConversationStep, walk
from rowpost.wire.headers import IS_SAGA_TIMEOUT, SAGA_ID

__all__ = ["LOOK_THROUGH", "conversation_page", "life_page", "saga_page"]

#: the newest messages of each queue that a page looks through
LOOK_THROUGH = 5_000
#: queues and delayed messages of each that are read for the timeouts of a saga
QUEUES, DELAYED = 20, 1000


def life_page(database: Connection, settings: Settings, wanted: str) -> made.MessageLifeDocument:
    """Return what is known of the message with this id, or in the row with this id. Raises InvalidCount."""
    life: MessageLife = message_life(database, settings, wanted, look_through=LOOK_THROUGH)
    facts = [made.FactDocument(**asdict(fact) | {"at": fact.at and fact.at.isoformat()}) for fact in life.facts]
    return made.MessageLifeDocument(life.message_id, life.message_type, life.conversation_id, facts, list(life.unfinished), list(life.unseen))


def conversation_page(database: Connection, conversation_id: str) -> made.ConversationDocument:
    """Return the messages of a conversation as a tree. Raises InvalidCount."""
    found: Conversation = conversation(database, conversation_id, look_through=LOOK_THROUGH)
    steps = [_step(prefix, step) for prefix, step in walk(found.steps)]
    return made.ConversationDocument(conversation_id, steps, list(found.unfinished), list(found.unseen))


def saga_page(database: Connection, saga: str, instance: str) -> made.SagaDetail:
    """Return an instance with its timeouts, from the delayed messages of its endpoint's queue. Raises SagaNotDeployed, SagaInstanceMissing.

    An endpoint's queue is known by its name, with which the saga's table begins. If no queue has it, up to 20 queues are read.
    """
    found = saga_instance(database, saga, instance)
    names = [row.queue_name for row in database.call("list_queues") if row.kind != "external" and row.delayed]
    own = [name for name in names if saga.startswith(f"{name.replace('.', '_')}_")]
    timeouts: list[made.SagaTimeout] = []
    unseen: list[str] = []
    for name in own or names[:QUEUES]:
        try:
            waiting = DelayedMessages(name, database).browse(DELAYED, max_body_bytes=0)
        except (PermissionDenied, FeatureMissing):
            unseen.append(name)
            continue
        timeouts += [
            made.SagaTimeout(name, each.due.isoformat(), each.message_type, each.key)
            for each in waiting
            if (each.headers.get(SAGA_ID) or "").lower() == found.id and each.headers.get(IS_SAGA_TIMEOUT)
        ]
    return made.SagaDetail(found, sorted(timeouts, key=lambda each: each.due), unseen)


def _step(prefix: str, step: ConversationStep) -> made.StepDocument:
    return made.StepDocument(
        tree=prefix,
        message_id=step.message_id,
        related_to=step.related_to,
        message_type=step.message_type,
        intent=step.intent,
        sending_endpoint=step.sending_endpoint,
        endpoint=step.endpoint,
        time_sent=None if step.time_sent is None else step.time_sent.isoformat(),
        state="failed" if step.failed else step.state or "handled",
        took_ms=step.took_ms,
    )
