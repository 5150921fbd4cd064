"""The options that several commands of `rowpost errors` have, and what they mean."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from rowpost.cli.completion import queue_names
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.session import Session
from rowpost.database.connection import Connection
from rowpost.transport.error_queue import ErrorQueue, Filter
from rowpost.wire.since import parse_since

__all__ = [
    "CauseOption", "ErrorQueueOption", "ExceptionOption", "FailedQueueOption", "MessageArgument", "MessagesArgument",
    "ReasonOption", "SinceOption", "ToOption", "TypeOption", "error_queue", "failed_filter",
]  # fmt: skip

ErrorQueueOption = Annotated[
    str | None,
    typer.Option(
        "--queue",
        "-q",
        metavar="QUEUE",
        help="The error queue. Default: the environment's.",
        autocompletion=queue_names,
    ),
]
MessageArgument = Annotated[
    str,
    typer.Argument(metavar="MESSAGE", help="A row number from the list, or the id of the row or of the message."),
]
FailedQueueOption = Annotated[
    str | None,
    typer.Option(
        "--failed-queue",
        "-f",
        metavar="QUEUE",
        help="Only messages that failed in this queue.",
        autocompletion=queue_names,
    ),
]
ExceptionOption = Annotated[
    str | None,
    typer.Option("--exception", "-e", metavar="TEXT", help="Only messages whose exception type or text contains this."),
]
TypeOption = Annotated[
    str | None, typer.Option("--type", "-t", metavar="TEXT", help="Only messages whose type contains this.")
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Only messages that failed then or later: 2h ago, or 2026-12-24T18:00Z."
    ),
]
CauseOption = Annotated[
    str | None,
    typer.Option("--cause", metavar="KEY", help="Only messages of this group, as `errors list --group` names it."),
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the record. Up to 400 characters.")
]
MessagesArgument = Annotated[list[str], typer.Argument(metavar="MESSAGE...", help="Row numbers from the list, or ids.")]
ToOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="QUEUE",
        help="Move to this queue instead of the one in which the message failed.",
        autocompletion=queue_names,
    ),
]


def error_queue(session: Session, database: Connection, queue: str | None) -> ErrorQueue:
    """Return the error queue of the option, or the environment's."""
    return ErrorQueue(database, session.settings.supervisor.error_queue if queue is None else session.name(queue))


def failed_filter(
    session: Session, failed_queue: str | None, exception: str | None, message_type: str | None, since: str | None
) -> Filter:
    """Return the filter of the options. Raises Refused: the time cannot be read."""
    try:
        at = None if since is None else parse_since(since, datetime.now(UTC))
    except ValueError as error:
        raise Refused(f"--since: {error}", ExitCode.USAGE) from None
    return Filter(None if failed_queue is None else session.name(failed_queue), exception, message_type, at)
