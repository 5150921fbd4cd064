"""rowpost errors retry, discard, edit: single failed messages. Each operation is on record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rowpost.cli.command import YesOption
from rowpost.cli.errors.options import (
    ErrorQueueOption,
    MessageArgument,
    MessagesArgument,
    ReasonOption,
    ToOption,
    error_queue,
)
from rowpost.cli.message import read_headers_file
from rowpost.cli.printing import visible
from rowpost.cli.session import OPERATOR, Session
from rowpost.operations.failed import DiscardFailed, Edit, Retry
from rowpost.transport.failed_message import FailedMessage

__all__ = ["discard", "edit_message", "retry"]


def retry(
    session: Session,
    message: MessagesArgument,
    queue: ErrorQueueOption = None,
    to: ToOption = None,
    reason: ReasonOption = None,
) -> None:
    """Move messages back, unchanged, to the queues in which they failed."""
    with session.deployed() as database:
        errors = error_queue(session, database, queue)
        other = None if to is None else session.name(to)
        for each in message:
            retried = Retry(
                queue=errors.queue.name, row=errors.find(each, max_body_bytes=0).row_version, to=other, reason=reason
            )
            session.result(retried.execute(database, OPERATOR))


def discard(
    session: Session,
    message: MessagesArgument,
    queue: ErrorQueueOption = None,
    reason: ReasonOption = None,
    yes: YesOption = False,
) -> None:
    """Delete failed messages."""
    with session.deployed() as database:
        errors = error_queue(session, database, queue)
        found = [errors.find(each, max_body_bytes=0) for each in message]
        for each in found:
            session.confirm(f"Delete {_description(each)} from {errors.queue.name} in {session.settings.target}?", yes)
            session.result(
                DiscardFailed(queue=errors.queue.name, row=each.row_version, reason=reason).execute(database, OPERATOR)
            )


def _description(message: FailedMessage) -> str:
    what = message.message_type or "a message without a type"
    return visible(f"message {message.row_version} ({what}, failed in {message.failed_in or 'an unknown queue'})")


def edit_message(
    session: Session,
    message: MessageArgument,
    body: Annotated[
        Path | None, typer.Option("--body", metavar="FILE", exists=True, dir_okay=False, help="The new body.")
    ] = None,
    headers: Annotated[
        Path | None, typer.Option("--headers", metavar="FILE", help="The new headers: a JSON object of texts.")
    ] = None,
    to: ToOption = None,
    queue: ErrorQueueOption = None,
    reason: ReasonOption = None,
) -> None:
    """Retry a message with a new body or new headers. The edited message gets a new id and refers to the original."""
    with session.deployed() as database:
        errors = error_queue(session, database, queue)
        edit = Edit(
            queue=errors.queue.name,
            row=errors.find(message, max_body_bytes=0).row_version,
            body=None if body is None else body.read_bytes(),
            headers=None if headers is None else read_headers_file(headers),
            to=None if to is None else session.name(to),
            reason=reason,
        )
        session.result(edit.execute(database, OPERATOR))
