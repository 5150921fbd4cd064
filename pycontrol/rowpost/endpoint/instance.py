"""Handle what arrives in the queue of an instance, in a program without a supervisor: `receive_instance`.

Under `rowpost run`, workers do this. Both may receive from the queue at a time, because all of them have the same
handlers. `endpoint.callbacks` starts the receiver.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol

from rowpost.database.connection import Connection
from rowpost.errors import RowpostError
from rowpost.handling.sender import Sender
from rowpost.pipeline.modes import OtherDatabases
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind, Outcome
from rowpost.wire.message import Message

__all__ = ["Requester", "receive_instance"]

logger = logging.getLogger("rowpost")

#: seconds between two polls of the queue: the pause doubles from the first value to the second
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.02, 1.0


class Requester(Sender, Protocol):
    """An endpoint that may have an `instance`, the name of this process among those of the endpoint."""

    instance: str | None
    error_queue: str

    @property
    def instance_queue(self) -> str | None:
        """The name of the queue that belongs to this process alone; None without an `instance`."""

    def pipeline(self, database: Connection, queue: str, others: OtherDatabases | None = None) -> Pipeline:
        """Return a pipeline that handles messages of a queue in this process."""

    def process_next(self, pipeline: Pipeline) -> Outcome:
        """Move due delayed messages, then receive and handle at most one message."""

    def typed(self, message: Message, expected: type | None = None) -> Any:
        """Return a reply decoded to its class."""


def receive_instance(
    endpoint: Requester, connect: Callable[[], Connection], others: OtherDatabases | None, closing: threading.Event
) -> None:
    """Handle the messages of an instance's queue until `closing` is set; after an error, on another connection."""
    queue = str(endpoint.instance_queue)
    while not closing.is_set():
        try:
            with contextlib.closing(endpoint.pipeline(connect(), queue, others)) as pipeline:
                pipeline.recover()
                _handle(endpoint, pipeline, closing)
        except Exception as error:  # a defect of ours must not end the thread silently
            defect = None if isinstance(error, RowpostError) else error
            text = "Messages in %s cannot be received and will be tried again: %s"
            logger.warning(text, queue, error, exc_info=defect)
            closing.wait(MAX_PAUSE_SECONDS)


def _handle(endpoint: Requester, pipeline: Pipeline, closing: threading.Event) -> None:
    pause = MIN_PAUSE_SECONDS
    while not closing.is_set():
        outcome = endpoint.process_next(pipeline)
        reason = outcome.error or (outcome.discard and outcome.discard.reason)
        if reason is not None:
            identity = outcome.message_id or outcome.id
            logger.warning("Message %s in %s: %s, because %s", identity, pipeline.queue, outcome.kind.value, reason)
        if outcome.kind not in (Kind.EMPTY, Kind.UNMOVABLE):
            pause = MIN_PAUSE_SECONDS
            continue
        closing.wait(pause)
        pause = min(2 * pause, MAX_PAUSE_SECONDS)
