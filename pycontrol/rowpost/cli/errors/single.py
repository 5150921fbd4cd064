"""rowpost errors retry, discard, edit: single failed messages. Each operation is on record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rowpost.cli.command import YesOption, command
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
from rowpost.transport.failed_message import FailedMessage

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to the group."""
    command(app, "retry")(retry)
    command(app, "discard")(discard)
    command(app, "edit")(edit)


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
            failed = errors.find(each)
            row = failed.row_version
            with OPERATOR.operation(database, "retry" if other is None else "move", errors.queue.name, reason=reason, row=row) as noted:
                noted.message_id = failed.message_id
                noted.details["to"] = destination = errors.retry(row, other)
            if session.as_json:
                session.document({"row_version": row, "message_id": failed.message_id, "retried_to": destination})
            else:
                session.note(f"Moved message {row} to {destination}.")


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
        found = [errors.find(each) for each in message]
        for each in found:
            session.confirm(f"Delete {_description(each)} from {errors.queue.name} in {session.settings.target}?", yes)
            with OPERATOR.operation(database, "discard", errors.queue.name, reason=reason, row=each.row_version) as noted:
                noted.message_id = each.message_id
                errors.discard(each.row_version)
            if session.as_json:
                session.document({"row_version": each.row_version, "message_id": each.message_id, "discarded": True})
            else:
                session.note(f"Discarded message {each.row_version}.")


def _description(message: FailedMessage) -> str:
    what = message.message_type or "a message without a type"
    return visible(f"message {message.row_version} ({what}, failed in {message.failed_in or 'an unknown queue'})")


def edit(
    session: Session,
    message: MessageArgument,
    body: Annotated[Path | None, typer.Option("--body", metavar="FILE", exists=True, dir_okay=False, help="The new body.")] = None,
    headers: Annotated[Path | None, typer.Option("--headers", metavar="FILE", help="The new headers: a JSON object of texts.")] = None,
    to: ToOption = None,
    queue: ErrorQueueOption = None,
    reason: ReasonOption = None,
) -> None:
    """Retry a message with a new body or new headers. The edited message gets a new id and refers to the original."""
    with session.deployed() as database:
        errors = error_queue(session, database, queue)
        failed = errors.find(message)
        row, edited = failed.row_version, {"body_edited": body is not None, "headers_edited": headers is not None}
        with OPERATOR.operation(database, "edit", errors.queue.name, reason=reason, row=row, **edited) as noted:
            noted.message_id = failed.message_id
            noted.details["to"] = destination = errors.edit(
                row,
                body=None if body is None else body.read_bytes(),
                headers=None if headers is None else read_headers_file(headers),
                to=None if to is None else session.name(to),
            )
    if session.as_json:
        session.document({"row_version": row, "message_id": failed.message_id, "edited_to": destination})
    else:
        session.note(f"Sent the edited copy of message {row} to {destination}.")
