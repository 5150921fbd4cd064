"""rowpost queue peek, purge, browse: count, delete and read the messages of a queue."""

from __future__ import annotations

from typing import Annotated

import typer

from rowpost.cli.command import QueueArgument, YesOption
from rowpost.cli.exits import CommandInterrupted, ExitCode
from rowpost.cli.formats import PEEK_LIMIT, format_count, format_exact_count
from rowpost.cli.interrupts import defer_interrupts
from rowpost.cli.printing import WITHHELD, describe_body, message_document, print_message, table, visible
from rowpost.cli.session import OPERATOR, Session
from rowpost.errors import MessageCorrupt
from rowpost.operations.purging import purge as purge_queue
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES, EXCEPTION_MESSAGE
from rowpost.wire.message import BrowsedMessage
from rowpost.wire.message_types import first_type, split_enclosed_types

__all__ = ["browse", "peek", "purge"]

PREVIEW_BYTES = 120


def peek(
    session: Session,
    name: QueueArgument,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=PEEK_LIMIT, help="Stop counting at this number.")
    ] = PEEK_LIMIT,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if messages are waiting.")] = False,
) -> ExitCode:
    """Count the waiting messages, without those that receivers have locked."""
    with session.deployed() as database:
        queue = session.queue(name, database)
        waiting = queue.peek(count)
    document = {"queue": queue.name, "waiting": waiting, "at_least": waiting >= count}
    session.answer(document, str(waiting), on_stdout=True)
    return ExitCode.FINDING if exit_code and waiting else ExitCode.OK


def purge(
    session: Session,
    name: QueueArgument,
    expired: Annotated[
        bool, typer.Option("--expired", help="Delete only messages whose time to be received has passed.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Delete all messages, in batches that commit one by one. Messages that receivers have locked stay."""
    with session.deployed() as database:
        queue = session.queue(name, database)
        waiting = queue.peek(PEEK_LIMIT)
        if not expired:
            session.confirm(f"Delete {format_count(waiting)} from {queue.name} in {session.settings.target}?", yes)
        with session.progress() as bar, defer_interrupts() as interrupts:
            task = bar.add_task(f"Purging {queue.name}", total=None)
            purged = purge_queue(
                database,
                OPERATOR,
                queue.name,
                expired=expired,
                progress=lambda deleted: bar.update(task, completed=deleted),
                stop=lambda: "cancelled" if interrupts.pending else None,
            )
            by_key, interrupts.pending = interrupts.pending, False
    if by_key and not purged.ended:
        raise CommandInterrupted(
            f"deleted {format_exact_count(purged.purged)} from {queue.name}; the rest is still there"
        )
    session.result(purged)


def browse(
    session: Session,
    name: QueueArgument,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=1000, help="Maximum number of messages, oldest first.")
    ] = 20,
    after: Annotated[
        int | None, typer.Option("--after", metavar="ROW", help="Only messages after this row number.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Show all headers and complete bodies.")] = False,
    body_bytes: Annotated[
        int | None, typer.Option("--body-bytes", min=0, help="With --full or --json: truncate bodies at this size.")
    ] = None,
) -> None:
    """Show messages without removing or locking them."""
    whole = full or session.as_json
    with session.deployed() as database:
        queue = session.queue(name, database)
        messages = queue.show(count, after, body_bytes if whole else PREVIEW_BYTES)
    if session.as_json:
        for message in messages:
            session.document(message_document(queue.name, message))
    elif full:
        for message in messages:
            print_message(session.out, message)
    else:
        columns = ("row", "bytes", "expires", "type or failure", "body")
        table(session.out, columns, [_line(message) for message in messages], right=("row", "bytes"))
        if any(message.withheld for message in messages):
            session.note(WITHHELD)
        _print_described(session, messages)
    if not messages and not session.as_json:
        session.note(f"{queue.name} has no messages to show.")


def _print_described(session: Session, messages: list[BrowsedMessage]) -> None:
    """Print what the environment says about the message types that were shown."""
    for name in dict.fromkeys(_type(message) for message in messages):
        about = session.settings.message_type(name)
        if about is not None:
            parts = (
                about.description,
                about.owner and f"owner: {about.owner}",
                about.runbook and f"runbook: {about.runbook}",
            )
            session.note(visible(f"{name}: {', '.join(filter(None, parts))}"))


def _type(message: BrowsedMessage) -> str:
    try:
        return next(iter(split_enclosed_types(message.headers.get(ENCLOSED_MESSAGE_TYPES))), "")
    except MessageCorrupt:
        return ""


def _line(message: BrowsedMessage) -> tuple[object, ...]:
    expires = "" if message.expires is None else f"{message.expires:%Y-%m-%d %H:%M:%S}"
    body = " ".join(describe_body(message.body).split()) if message.body else ""
    return message.row_version, f"{message.body_bytes:,}", expires, _type_or_failure(message), body


def _type_or_failure(message: BrowsedMessage) -> str:
    """Return the reason of the failure, or the message type if the message has not failed."""
    try:
        headers = message.headers
    except MessageCorrupt:
        return "(headers cannot be read)"
    failure = headers.get(EXCEPTION_MESSAGE)
    if failure:
        return f"failed: {failure}"
    return first_type(headers.get(ENCLOSED_MESSAGE_TYPES))
