"""rowpost errors list, show, retry, retry-all, discard, edit: what failed, and what becomes of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from rowpost.cli.amounts import exact_amount
from rowpost.cli.command import command
from rowpost.cli.completion import queue_names
from rowpost.cli.exits import ExitCode, Interrupted
from rowpost.cli.outgoing import read_headers_file
from rowpost.cli.printing import describe_body, message_document, table, visible
from rowpost.cli.queue import YesOption
from rowpost.cli.session import Session
from rowpost.database.connection import Connection
from rowpost.transport.error_queue import BATCH, ErrorQueue, Filter, Retried
from rowpost.transport.failed_message import FailedMessage
from rowpost.wire.headers import EXCEPTION_INFO

__all__ = ["app"]

app = typer.Typer(help="Look at failed messages, and bring them back.", no_args_is_help=True)

#: how many refused messages are named one by one
SHOWN = 20
#: of an exception's text in a list
TEXT = 80

ErrorQueueOption = Annotated[
    str | None,
    typer.Option(
        "--queue",
        "-q",
        metavar="QUEUE",
        help="The error queue; the environment's by default.",
        autocompletion=queue_names,
    ),
]
MessageArgument = Annotated[
    str,
    typer.Argument(metavar="MESSAGE", help="A row's number from the list; the id of the row or the message works too."),
]
FailedQueueOption = Annotated[
    str | None,
    typer.Option(
        "--failed-queue", "-f", metavar="QUEUE", help="Only what failed in this queue.", autocompletion=queue_names
    ),
]
ExceptionOption = Annotated[
    str | None,
    typer.Option("--exception", "-e", metavar="TEXT", help="Only with this in the exception's type or text."),
]
TypeOption = Annotated[
    str | None, typer.Option("--type", "-t", metavar="TEXT", help="Only with this in the message's type.")
]
ToOption = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="QUEUE", help="This queue instead of the one where it failed.", autocompletion=queue_names
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
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most, oldest first.")] = 50,
    after: Annotated[int | None, typer.Option("--after", metavar="ROW", help="Only messages after this row.")] = None,
) -> None:
    """List failed messages: where, when, why, and what they are."""
    wanted = _filter(session, failed_queue, exception, message_type)
    with session.deployed() as database:
        found = list(_errors(session, database, queue).list(wanted, limit=limit, after=after))
    if session.as_json:
        for message in found:
            session.document(_document(message))
        return
    columns = ("row", "failed in", "when", "exception", "message type")
    table(session.out, columns, [_line(message) for message in found], right=("row",))
    if not found:
        session.note("No message to show.")
    elif len(found) == limit:
        session.note(f"The first {exact_amount(limit)}; go on with --after {found[-1].row_version}.")


def _line(message: FailedMessage) -> tuple[object, ...]:
    if message.corrupt:
        return message.row_version, "?", "", "(headers cannot be read: rowpost errors show tells more)", ""
    text = " ".join(message.exception_message.split())
    what = f"{message.exception_type.rpartition('.')[2]}: {text}" if message.exception_type else text
    what = what if len(what) <= TEXT else what[: TEXT - 1] + "…"
    return message.row_version, message.failed_queue or "?", message.failed_at[:19], what, message.message_type


def _document(message: FailedMessage) -> dict[str, object]:
    return {
        "row_version": message.row_version,
        "id": str(message.id),
        "message_id": message.message_id,
        "failed_queue": message.failed_queue,
        "failed_at": message.failed_at or None,
        "exception_type": message.exception_type or None,
        "exception": message.exception_message or None,
        "message_type": message.message_type or None,
        "body_bytes": message.browsed.body_bytes,
        "corrupt": message.corrupt,
    }


@command(app)
def show(session: Session, message: MessageArgument, queue: ErrorQueueOption = None) -> None:
    """Show a failed message: why it failed, its stack trace, headers and body."""
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
            "It was moved here unchanged before any handler saw it, so that nothing says where it failed, and "
            "ServiceControl cannot import it. Mend it with edit --headers FILE --to QUEUE, bring it back as it is with "
            "retry --to QUEUE, or discard it."
        )
        say(visible(f"\nheaders as stored:\n{message.browsed.raw_headers}"))
    else:
        say(Text(visible(f"{message.exception_type}: {message.exception_message}"), style="red"))
        say(visible(f"in {message.failed_queue or 'an unknown queue'} at {message.failed_at or 'an unknown time'}\n"))
        for name, value in message.headers.items():
            if name != EXCEPTION_INFO + "StackTrace":
                say(Text.assemble("  ", (visible(name), "cyan"), ": ", visible("(null)" if value is None else value)))
        if message.stack_trace:
            say(visible(f"\n{message.stack_trace.rstrip()}"))
    say("\n" + describe_body(message.browsed.body, message.browsed.body_bytes))


@command(app)
def retry(
    session: Session,
    message: Annotated[list[str], typer.Argument(metavar="MESSAGE...", help="Rows from the list, or ids.")],
    queue: ErrorQueueOption = None,
    to: ToOption = None,
) -> None:
    """Bring messages back to the queues where they failed, unchanged."""
    with session.deployed() as database:
        errors = _errors(session, database, queue)
        for each in message:
            row = errors.find(each).row_version
            destination = errors.retry(row, None if to is None else session.name(to))
            if session.as_json:
                session.document({"row_version": row, "retried_to": destination})
            else:
                session.note(f"Message {row} is back in {destination}.")


@command(app, "retry-all")
def retry_all(
    session: Session,
    queue: ErrorQueueOption = None,
    failed_queue: FailedQueueOption = None,
    exception: ExceptionOption = None,
    message_type: TypeOption = None,
    yes: YesOption = False,
) -> ExitCode:
    """Bring all messages that match back to the queues where they failed; exit code 1 if some had to stay."""
    wanted = _filter(session, failed_queue, exception, message_type)
    with session.deployed() as database:
        errors = _errors(session, database, queue)
        found = [(each.row_version, each.failed_queue or "?") for each in errors.list(wanted)]
        where = ", ".join(f"{count:,} to {name}" for name, count in Counter(name for _, name in found).most_common())
        if found:
            session.confirm(f"Bring back {exact_amount(len(found))} in {session.settings.target} ({where})?", yes)
        result = _retry_rows(session, errors, [row for row, _ in found])
    _print_retried(session, result)
    return ExitCode.FINDING if result.refused else ExitCode.OK


def _retry_rows(session: Session, errors: ErrorQueue, rows: list[int]) -> Retried:
    """Batch by batch, so that Ctrl-C leaves nothing half done."""
    retried, gone, refused = 0, 0, []
    try:
        with session.progress() as bar:
            task = bar.add_task("Bringing back", total=len(rows))
            for start in range(0, len(rows), BATCH):
                part = errors.retry_all(rows=rows[start : start + BATCH])
                retried, gone = retried + part.retried, gone + part.gone
                refused += part.refused
                bar.update(task, completed=min(start + BATCH, len(rows)))
    except KeyboardInterrupt:
        raise Interrupted(f"brought back {exact_amount(retried)}; the rest is still in {errors.queue.name}") from None
    return Retried(retried, gone, tuple(refused))


def _print_retried(session: Session, result: Retried) -> None:
    if session.as_json:
        refused = [{"row_version": row, "reason": reason} for row, reason in result.refused]
        session.document({"retried": result.retried, "gone": result.gone, "refused": refused})
        return
    session.note(f"Brought back {exact_amount(result.retried)}.")
    if result.gone:
        session.note(f"{exact_amount(result.gone)} had been taken by somebody else meanwhile.")
    for row, reason in result.refused[:SHOWN]:
        session.note(visible(f"Message {row} stays: {reason}"))
    if len(result.refused) > SHOWN:
        session.note(f"... and {exact_amount(len(result.refused) - SHOWN)} more.")


@command(app)
def discard(
    session: Session,
    message: Annotated[list[str], typer.Argument(metavar="MESSAGE...", help="Rows from the list, or ids.")],
    queue: ErrorQueueOption = None,
    yes: YesOption = False,
) -> None:
    """Remove failed messages for good."""
    with session.deployed() as database:
        errors = _errors(session, database, queue)
        found = [errors.find(each) for each in message]
        for each in found:
            session.confirm(f"Remove {_in_words(each)} from {errors.queue.name} in {session.settings.target}?", yes)
            errors.discard(each.row_version)
            if session.as_json:
                session.document({"row_version": each.row_version, "discarded": True})
            else:
                session.note(f"Message {each.row_version} is gone.")


def _in_words(message: FailedMessage) -> str:
    what = message.message_type or "a message without a type"
    return visible(f"message {message.row_version} ({what}, failed in {message.failed_queue or 'an unknown queue'})")


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
    """Bring a message back with another body or other headers; it gets an id of its own, and says whose edit it is."""
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
        session.note(f"The edit of message {row} is in {destination}.")
