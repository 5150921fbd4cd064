"""rowpost acts list, show, cancel, resume, clean: the record of what operators did, and acts on many messages that go on."""

from __future__ import annotations

from typing import Annotated

import typer

from rowpost.cli.bulk import execute
from rowpost.cli.command import command
from rowpost.cli.errors.many import header_values
from rowpost.cli.exits import ExitCode
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.transport.acts import KEPT_DAYS, Act, cancel_act, clean_acts, find_act, list_acts
from rowpost.transport.bulk_acts import BulkAct

__all__ = ["app"]

app = typer.Typer(help="Read the record of what operators did, and cancel or go on with acts on many messages.", no_args_is_help=True)
NumberArgument = Annotated[int, typer.Argument(metavar="ACT", min=1, help="The act's number, as rowpost acts list shows it.", show_default=False)]


@command(app, "list")
def list_recorded(
    session: Session,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="Maximum number of acts, the last one first.")] = 20,
    before: Annotated[int | None, typer.Option("--before", metavar="ACT", help="Only acts before this one.")] = None,
) -> None:
    """List what operators did by dashboard and command line, the last act first."""
    with session.deployed() as database:
        acts = list_acts(database, count, before)
    if session.as_json:
        for act in acts:
            session.document(act.document())
        return
    rows = [
        (act.number, f"{act.started_at:%Y-%m-%d %H:%M:%S}", act.who, act.name, act.queue or "", act.state, _messages(act), act.reason or "")
        for act in acts
    ]
    table(session.out, ("act", "began (UTC)", "who", "what", "queue", "state", "messages", "why"), rows, right=("act", "messages"))
    if not acts:
        session.note("No act is on record.")
    elif len(acts) == count:
        session.note(f"Showing the last {count}. For earlier ones, add --before {acts[-1].number}.")


@command(app)
def show(session: Session, number: NumberArgument) -> None:
    """Show an act: who did what to which queue, when and why, and how far it is."""
    with session.deployed() as database:
        act = find_act(database, number)
    if session.as_json:
        session.document(act.document())
        return
    shown = {
        "act": act.number, "what": act.name, "state": act.state, "who": f"{act.who}, {act.client}", "queue": act.queue, "message id": act.message_id,
        **{f"- {name}": value for name, value in act.document()["details"].items()}, "why": act.reason, "began (UTC)": act.started_at,
        "last report (UTC)": act.changed_at, "ended (UTC)": act.ended_at, "messages": _messages(act), "already gone": act.gone or None, "stay": act.refused or None,
        "cancelled by": act.cancelled_by, "outcome": act.outcome,
    }  # fmt: skip
    table(session.out, ("", ""), [(name, value) for name, value in shown.items() if value is not None])
    if act.may_go_on:
        session.note(f"To go on with it: rowpost acts resume {act.number}")


@command(app)
def cancel(session: Session, number: NumberArgument) -> ExitCode:
    """Ask an act to stop, whichever process executes it. Exit code 1 if it had ended."""
    with session.deployed() as database:
        done = cancel_act(database, number)
    if session.as_json:
        session.document({"act": number, "cancelled": done})
    else:
        session.note(f"Act {number} stops after the messages that it changes now." if done else f"Act {number} had already ended.")
    return ExitCode.OK if done else ExitCode.FINDING


@command(app)
def resume(
    session: Session,
    number: NumberArgument,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="For edit-all: the headers as before, because the record has no values."),
    ] = None,
) -> ExitCode:
    """Go on with an act on many messages that was interrupted, cancelled or failed, behind the last message that it finished."""
    with session.deployed() as database:
        return execute(session, BulkAct.resume(database, number, header_values(header)))


@command(app)
def clean(
    session: Session,
    keep: Annotated[int, typer.Option("--keep-days", min=1, max=10_000, help="Delete acts that began before so many days.")] = KEPT_DAYS,
) -> None:
    """Delete old acts from the record. Supervisors whose login is an operator do so every hour."""
    with session.deployed() as database:
        removed = clean_acts(database, keep)
    if session.as_json:
        session.document({"deleted": removed})
    else:
        session.note(f"Deleted {removed:,} {'act' if removed == 1 else 'acts'} that began more than {keep} days ago.")


def _messages(act: Act) -> str:
    return f"{act.done:,}" if act.total is None else f"{act.done:,} of {act.total:,}"
