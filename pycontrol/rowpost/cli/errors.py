"""rowpost errors list, show, retry, retry-all, discard, edit: the messages in an error queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from rowpost.cli.command import YesOption, command
from rowpost.cli.completion import queue_names
from rowpost.cli.exits import ExitCode, Interrupted
from rowpost.cli.formats import format_exact_count
from rowpost.cli.message import read_headers_file
from rowpost.cli.printing import describe_body, message_document, table, visible
from rowpost.cli.session import Session
from rowpost.database.connection import Connection
from rowpost.transport.error_queue import BATCH, ErrorQueue, Filter, Retried
from rowpost.transport.failed_message import FailedMessage
from rowpost.wire.headers import EXCEPTION_INFO

__all__ = ["app"]

app = typer.Typer(help="Inspect, retry, edit and discard failed messages.", no_args_is_help=True)

#: this many refused messages are listed one by one
SHOWN_REFUSALS = 20
#: characters of an exception's text in a list
EXCEPTION_CHARACTERS = 80

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
        "--failed-queue", "-f", metavar="QUEUE", help="Only messages that failed in this queue.", autocompletion=queue_names
    ),
]
ExceptionOption = Annotated[
    str | None,
    typer.Option("--exception", "-e", metavar="TEXT", help="Only messages whose exception type or text contains this."),
]
TypeOption = Annotated[
    str | None, typer.Option("--type", "-t", metavar="TEXT", help="Only messages whose type contains this.")
]
ToOption = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="QUEUE", help="Move to this queue instead of the one in which the message failed.", autocompletion=queue_names
    ),
]


def _errors(session: Session, database: Connection, queue: str | None) -> ErrorQueue:
    return ErrorQueue(database, session.settings.supervisor.error_queue if queue is None else session.name(queue))


def _filter(session: Session, failed_queue: str | None, exception: str | None, message_type: str | None) -> Filter:
    return Filter(None if failed_queue is None else session.name(failed_queue), exception, message_type)


@command(app, "list")
def list_errors(
    session: Session,
    queue: ErrorQueueOption = None,
    failed_queue: FailedQueueOption = None,
    exception: ExceptionOption = None,
    message_type: TypeOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of messages, oldest first.")] = 50,
    after: Annotated[int | None, typer.Option("--after", metavar="ROW", help="Only messages after this row number.")] = None,
) -> None:
    """List failed messages: the queue, the time, the exception and the message type."""
    wanted = _filter(session, failed_queue, exception, message_type)
    show_as: Callable[[FailedMessage], Any] = _document if session.as_json else _line
    with session.deployed() as database:
        found = [(each.row_version, show_as(each)) for each in _errors(session, database, queue).list(wanted, limit=limit, after=after)]
    if session.as_json:
        for _, document in found:
            session.document(document)
        return
    columns = ("row", "failed in", "when", "exception", "message type")
    table(session.out, columns, [line for _, line in found], right=("row",))
    if not found:
        session.note("No messages match.")
    elif len(found) == limit:
        session.note(f"Showing the first {format_exact_count(limit)}. For more, add --after {found[-1][0]}.")


def _line(message: FailedMessage) -> tuple[object, ...]:
    if message.corrupt:
        return message.row_version, "?", "", "(headers cannot be read: see rowpost errors show)", ""
    text = " ".join(message.exception_message.split())
    what = f"{message.exception_type.rpartition('.')[2]}: {text}" if message.exception_type else text
    what = what if len(what) <= EXCEPTION_CHARACTERS else what[: EXCEPTION_CHARACTERS - 1] + "…"
    return message.row_version, message.failed_in or "?", message.failed_at[:19], what, message.message_type


def _document(message: FailedMessage) -> dict[str, object]:
    return {
        "row_version": message.row_version,
        "id": str(message.id),
        "message_id": message.message_id,
        "failed_queue": message.failed_in,
        "failed_at": message.failed_at_iso,
        "exception_type": message.exception_type or None,
        "exception": message.exception_message or None,
        "message_type": message.message_type or None,
        "body_bytes": message.browsed.body_bytes,
        "corrupt": message.corrupt,
    }


@command(app)
def show(session: Session, message: MessageArgument, queue: ErrorQueueOption = None) -> None:
    """Show a failed message: the exception, the stack trace, the headers and the body."""
    with session.deployed() as database:
        errors = _errors(session, database, queue)
        found = errors.find(message)
        if session.as_json:
            session.document(_document(found) | message_document(errors.queue.name, found.browsed))
        else:
            _print(session, found)


def _print(session: Session, message: FailedMessage) -> None:
    def say(text: Text | str = "") -> None:
        session.out.print(text, soft_wrap=True)

    say(Text(f"row {message.row_version}  {message.id}  {message.browsed.body_bytes:,} bytes", style="bold"))
    if message.corrupt:
        say(visible(f"Its headers cannot be read: {message.corrupt}"))
        say(
            "The message was moved here unchanged, before any handler received it. Its headers do not say where it failed, "
            "and ServiceControl cannot import it. Repair it with edit --headers FILE --to QUEUE, retry it unchanged "
            "with retry --to QUEUE, or discard it."
        )
        say(visible(f"\nheaders as stored:\n{message.browsed.raw_headers}"))
    else:
        say(Text(visible(f"{message.exception_type}: {message.exception_message}"), style="red"))
        say(visible(f"in {message.failed_in or 'an unknown queue'} at {message.failed_at or 'an unknown time'}\n"))
        for name, value in message.headers.items():
            if name != EXCEPTION_INFO + "StackTrace":
                say(Text.assemble("  ", (visible(name), "cyan"), ": ", visible("(null)" if value is None else value)))
        if message.stack_trace:
            say(visible(f"\n{message.stack_trace.rstrip()}"))
    say("\n" + describe_body(message.browsed.body, message.browsed.body_bytes))


@command(app)
def retry(
    session: Session,
    message: Annotated[list[str], typer.Argument(metavar="MESSAGE...", help="Row numbers from the list, or ids.")],
    queue: ErrorQueueOption = None,
    to: ToOption = None,
) -> None:
    """Move messages back, unchanged, to the queues in which they failed."""
    with session.deployed() as database:
        errors = _errors(session, database, queue)
        for each in message:
            row = errors.find(each).row_version
            destination = errors.retry(row, None if to is None else session.name(to))
            if session.as_json:
                session.document({"row_version": row, "retried_to": destination})
            else:
                session.note(f"Moved message {row} to {destination}.")


@command(app, "retry-all")
def retry_all(
    session: Session,
    queue: ErrorQueueOption = None,
    failed_queue: FailedQueueOption = None,
    exception: ExceptionOption = None,
    message_type: TypeOption = None,
    yes: YesOption = False,
) -> ExitCode:
    """Move all matching messages back to the queues in which they failed. Exit code 1 if some could not be moved."""
    wanted = _filter(session, failed_queue, exception, message_type)
    with session.deployed() as database:
        errors = _errors(session, database, queue)
        found = [(each.row_version, each.failed_in or "?") for each in errors.list(wanted)]
        where = ", ".join(f"{count:,} to {name}" for name, count in Counter(name for _, name in found).most_common())
        if found:
            session.confirm(f"Retry {format_exact_count(len(found))} in {session.settings.target} ({where})?", yes)
        result = _retry_rows(session, errors, [row for row, _ in found])
    _print_retried(session, result)
    return ExitCode.FINDING if result.refused else ExitCode.OK


def _retry_rows(session: Session, errors: ErrorQueue, rows: list[int]) -> Retried:
    """Retry in batches, each in a transaction of its own, so that Ctrl-C never leaves a batch half done."""
    retried, gone = 0, 0
    refused: list[tuple[int, str]] = []
    try:
        with session.progress() as bar:
            task = bar.add_task("Retrying", total=len(rows))
            for start in range(0, len(rows), BATCH):
                part = errors.retry_all(rows=rows[start : start + BATCH])
                retried, gone = retried + part.retried, gone + part.gone
                refused += part.refused
                bar.update(task, completed=min(start + BATCH, len(rows)))
    except KeyboardInterrupt:
        raise Interrupted(f"retried {format_exact_count(retried)}; the rest is still in {errors.queue.name}") from None
    return Retried(retried, gone, tuple(refused))


def _print_retried(session: Session, result: Retried) -> None:
    if session.as_json:
        refused = [{"row_version": row, "reason": reason} for row, reason in result.refused]
        session.document({"retried": result.retried, "gone": result.gone, "refused": refused})
        return
    session.note(f"Retried {format_exact_count(result.retried)}.")
    if result.gone:
        session.note(f"{format_exact_count(result.gone)} had already been removed by another process.")
    for row, reason in result.refused[:SHOWN_REFUSALS]:
        session.note(visible(f"Message {row} was not moved: {reason}"))
    if len(result.refused) > SHOWN_REFUSALS:
        session.note(f"... and {format_exact_count(len(result.refused) - SHOWN_REFUSALS)} more.")


@command(app)
def discard(
    session: Session,
    message: Annotated[list[str], typer.Argument(metavar="MESSAGE...", help="Row numbers from the list, or ids.")],
    queue: ErrorQueueOption = None,
    yes: YesOption = False,
) -> None:
    """Delete failed messages."""
    with session.deployed() as database:
        errors = _errors(session, database, queue)
        found = [errors.find(each) for each in message]
        for each in found:
            session.confirm(f"Delete {_description(each)} from {errors.queue.name} in {session.settings.target}?", yes)
            errors.discard(each.row_version)
            if session.as_json:
                session.document({"row_version": each.row_version, "discarded": True})
            else:
                session.note(f"Discarded message {each.row_version}.")


def _description(message: FailedMessage) -> str:
    what = message.message_type or "a message without a type"
    return visible(f"message {message.row_version} ({what}, failed in {message.failed_in or 'an unknown queue'})")


@command(app)
def edit(
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
) -> None:
    """Retry a message with a new body or new headers. The edited message gets a new id and refers to the original."""
    with session.deployed() as database:
        errors = _errors(session, database, queue)
        row = errors.find(message).row_version
        destination = errors.edit(
            row,
            body=None if body is None else body.read_bytes(),
            headers=None if headers is None else read_headers_file(headers),
            to=None if to is None else session.name(to),
        )
    if session.as_json:
        session.document({"row_version": row, "edited_to": destination})
    else:
        session.note(f"Sent the edited copy of message {row} to {destination}.")
