"""rowpost errors list, show: what failed, where, when and why."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from rowpost.cli.errors.options import (
    CauseOption,
    ErrorQueueOption,
    ExceptionOption,
    FailedQueueOption,
    MessageArgument,
    SinceOption,
    TypeOption,
    error_queue,
    failed_filter,
)
from rowpost.cli.formats import PEEK_LIMIT, format_count, format_exact_count
from rowpost.cli.printing import WITHHELD, describe_body, message_document, table, visible
from rowpost.cli.session import Session
from rowpost.operations.bulk import EVERYTHING
from rowpost.operations.reading import failed_group, failed_summary
from rowpost.transport.error_queue import ErrorQueue, Filter
from rowpost.transport.failed_message import FailedMessage
from rowpost.transport.failure_groups import cause_of, scan
from rowpost.wire.headers import EXCEPTION_INFO

__all__ = ["list_errors", "show"]

#: characters of an exception's text in a list
EXCEPTION_CHARACTERS = 80


def list_errors(
    session: Session,
    queue: ErrorQueueOption = None,
    failed_queue: FailedQueueOption = None,
    exception: ExceptionOption = None,
    message_type: TypeOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of messages, oldest first.")] = 50,
    since: SinceOption = None,
    cause: CauseOption = None,
    group: Annotated[bool, typer.Option("--group", help="Count all matching messages by their cause.")] = False,
    after: Annotated[
        int | None, typer.Option("--after", metavar="ROW", help="Only messages after this row number.")
    ] = None,
) -> None:
    """List failed messages: the queue, the time, the exception, the message type and the id."""
    wanted = failed_filter(session, failed_queue, exception, message_type, since)
    with session.deployed() as database:
        errors = error_queue(session, database, queue)
        if group:
            _print_groups(session, errors, wanted, cause, after)
            return
        matching = errors.list(wanted, after=after)
        found = list(islice((each for each in matching if cause in (None, cause_of(each).key)), limit))
        if session.as_json:
            for each in found:
                session.document(failed_summary(each))
            return
        rows = [_line(each) for each in found]
        waiting = errors.queue.peek(PEEK_LIMIT)
    columns = ("row", "failed in", "when", "exception", "message type", "message id")
    table(session.out, columns, rows, right=("row",))
    if not found:
        session.note("No messages match.")
    elif len(found) == limit:
        session.note(f"Showing the first {format_exact_count(limit)}. For more, add --after {found[-1].row_version}.")
    if waiting:
        session.note(f"{errors.queue.name} has {format_count(waiting)}. For totals by cause, add --group.")


def _print_groups(session: Session, errors: ErrorQueue, wanted: Filter, cause: str | None, after: int | None) -> None:
    """Read all messages, and print those that match by cause, with totals."""
    found = scan(errors, wanted, key=cause, after=after, show=0, read_at_most=EVERYTHING)
    if session.as_json:
        for each in found.groups:
            session.document(failed_group(each))
        return
    rows = [
        (
            each.count,
            each.cause.failed_in or "?",
            (each.last_failed_at or "")[:19],
            _exception(each.cause.exception_type, each.example),
            each.cause.message_type,
            each.cause.key,
        )
        for each in found.groups
    ]
    table(
        session.out, ("messages", "failed in", "last", "exception", "message type", "cause"), rows, right=("messages",)
    )
    session.note(
        f"{format_exact_count(found.matched)} of {found.read:,} in {errors.queue.name} match, of {len(found.groups):,} "
        f"{'cause' if len(found.groups) == 1 else 'causes'}."
    )


def _line(message: FailedMessage) -> tuple[object, ...]:
    if message.corrupt:
        return message.row_version, "?", "", "(headers cannot be read: see rowpost errors show)", "", message.message_id
    what = _exception(message.exception_type, message.exception_message)
    return (
        message.row_version,
        message.failed_in or "?",
        message.failed_at[:19],
        what,
        message.message_type,
        message.message_id,
    )


def _exception(kind: str, message: str) -> str:
    text = " ".join(message.split())
    what = f"{kind.rpartition('.')[2]}: {text}" if kind else text
    return what if len(what) <= EXCEPTION_CHARACTERS else what[: EXCEPTION_CHARACTERS - 1] + "…"


def show(session: Session, message: MessageArgument, queue: ErrorQueueOption = None) -> None:
    """Show a failed message: the exception, the stack trace, the headers and the body."""
    with session.deployed() as database:
        errors = error_queue(session, database, queue)
        found = errors.find(message)
        if session.as_json:
            session.document(
                msgspec.structs.asdict(failed_summary(found)) | message_document(errors.queue.name, found.browsed)
            )
        else:
            _print(session, found)


def _print(session: Session, message: FailedMessage) -> None:
    def say(text: Text | str = "") -> None:
        session.out.print(text, soft_wrap=True)

    say(
        Text(
            visible(f"row {message.row_version}  message {message.message_id}  {message.browsed.body_bytes:,} bytes"),
            style="bold",
        )
    )
    if message.corrupt:
        say(visible(f"Its headers cannot be read: {message.corrupt}"))
        say(
            "The message was moved here unchanged, before any handler received it. Its headers do not say where it "
            "failed, and ServiceControl cannot import it. Repair it with edit --headers FILE --to QUEUE, retry it "
            "unchanged with retry --to QUEUE, or discard it."
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
    browsed = message.browsed
    say("\n" + (WITHHELD if browsed.withheld else describe_body(browsed.body, browsed.body_bytes)))
