"""Read what is known of one message, and of a conversation, for the pages that follow messages."""

from __future__ import annotations

from dataclasses import asdict

from rowpost.dashboard import documents as made
from rowpost.database.connection import Connection
from rowpost.endpoint.message_life import Conversation, MessageLife, conversation, message_life
from rowpost.settings.environment import Settings
from rowpost.wire.conversation import Step, walk

__all__ = ["LOOK_THROUGH", "conversation_page", "life_page"]

#: the newest messages of each queue that a page looks through
LOOK_THROUGH = 5_000


def life_page(database: Connection, settings: Settings, wanted: str) -> made.MessageLifeDocument:
    """Return what is known of the message with this id, or in the row with this id. Raises InvalidCount."""
    life: MessageLife = message_life(database, settings, wanted, look_through=LOOK_THROUGH)
    facts = [made.FactDocument(**asdict(fact) | {"at": fact.at and fact.at.isoformat()}) for fact in life.facts]
    return made.MessageLifeDocument(
        life.message_id, life.message_type, life.conversation_id, facts, list(life.unfinished), list(life.unseen)
    )


def conversation_page(database: Connection, conversation_id: str) -> made.ConversationDocument:
    """Return the messages of a conversation as a tree. Raises InvalidCount."""
    found: Conversation = conversation(database, conversation_id, look_through=LOOK_THROUGH)
    steps = [_step(prefix, step) for prefix, step in walk(found.steps)]
    return made.ConversationDocument(conversation_id, steps, list(found.unfinished), list(found.unseen))


def _step(prefix: str, step: Step) -> made.StepDocument:
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
