"""rowpost delayed list, cancel, move, send-now: the messages of a queue that are not due yet."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from rowpost.cli.command import QueueArgument, YesOption, command
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.formats import parse_duration
from rowpost.cli.printing import WITHHELD, describe_body, table
from rowpost.cli.session import OPERATOR, Session
from rowpost.operations.delayed import CancelDelayed, MoveDelayed, SendNow, delayed_message_document
from rowpost.transport.delayed_messages import DelayedMessage, DelayedMessages

__all__ = ["app"]

app = typer.Typer(help="Look at the delayed messages of a queue, and change when they are due.", no_args_is_help=True)
PREVIEW_BYTES = 120
KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="The message, as rowpost delayed list shows it.", show_default=False)
]


@command(app, "list")
def list_delayed(
    session: Session,
    name: QueueArgument,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=1000, help="Maximum number of messages, the next ones first.")
    ] = 20,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Only messages that are due then or later, such as 2h from now, or 2026-12-24T18:00Z.",
        ),
    ] = None,
) -> None:
    """Show the messages that are due next, without those that are being moved."""
    due_in = None if since is None else _time(since) - datetime.now(UTC)
    with session.deployed() as database:
        delayed = DelayedMessages(session.name(name), database)
        messages = delayed.show(count, due_in, PREVIEW_BYTES)
    if session.as_json:
        for message in messages:
            session.document(delayed_message_document(delayed.queue, message))
        return
    rows = [
        (
            each.key,
            f"{each.due:%Y-%m-%d %H:%M:%S}",
            each.message_type,
            each.message_id,
            f"{each.body_bytes:,}",
            _preview(each),
        )
        for each in messages
    ]
    table(session.out, ("key", "due (UTC)", "type", "message id", "bytes", "body"), rows, right=("bytes",))
    if any(each.withheld for each in messages):
        session.note(WITHHELD)
    if not messages:
        session.note(f"{delayed.queue} has no delayed messages{'' if since is None else ' from then on'}.")


@command(app)
def cancel(
    session: Session,
    name: QueueArgument,
    key: KeyArgument,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.", show_default=False)],
    yes: YesOption = False,
) -> None:
    """Remove a delayed message for good. Its headers and body are printed with --json."""
    with session.deployed() as database:
        delayed = DelayedMessages(session.name(name), database)
        session.confirm(
            f"Remove the delayed message {key} of {delayed.queue} in {session.settings.target} for good?", yes
        )
        session.result(
            CancelDelayed(queue=delayed.queue, key=session.text(key), reason=reason).execute(database, OPERATOR)
        )


@command(app)
def move(
    session: Session,
    name: QueueArgument,
    key: KeyArgument,
    to: Annotated[
        str,
        typer.Argument(metavar="TIME", help="When it is due: 30m from now, or 2026-12-24T18:00Z.", show_default=False),
    ],
) -> None:
    """Let a delayed message be due at another time."""
    due = _time(to)
    with session.deployed() as database:
        session.result(
            MoveDelayed(queue=session.name(name), key=session.text(key), due=due).execute(database, OPERATOR)
        )


@command(app, "send-now")
def send_now(session: Session, name: QueueArgument, key: KeyArgument) -> None:
    """Let a delayed message be due now: a supervisor of the queue moves it with its next peek."""
    with session.deployed() as database:
        session.result(SendNow(queue=session.name(name), key=session.text(key)).execute(database, OPERATOR))


def _time(text: str) -> datetime:
    """Return a time from now, or one that is spelt with its time zone. Raises Refused."""
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return datetime.now(UTC) + parse_duration(text)
    if at.tzinfo is None:
        raise Refused(f"The time {text} has no time zone. For UTC, write {text}Z.", ExitCode.USAGE)
    return at.astimezone(UTC)


def _preview(message: DelayedMessage) -> str:
    return " ".join(describe_body(message.body).split()) if message.body else ""
