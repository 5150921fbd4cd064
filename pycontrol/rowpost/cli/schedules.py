"""rowpost schedules list, next, pause, resume, run: messages that are sent at due times."""

from __future__ import annotations

from typing import Annotated

import typer

from rowpost.cli.command import command
from rowpost.cli.session import OPERATOR, Session
from rowpost.operations.operation import Operation
from rowpost.operations.schedules import (
    MOST_TIMES,
    PauseSchedule,
    ResumeSchedule,
    RunSchedule,
    ScheduleChanged,
    next_times,
    schedules,
)

__all__ = ["app"]

app = typer.Typer(
    help="List the schedules and their next due times, and pause, resume or run one.", no_args_is_help=True
)

NameArgument = Annotated[str, typer.Argument(metavar="SCHEDULE", help="The name, as rowpost schedules list shows it.")]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why, for those who read it. Up to 400 characters.")
]


@command(app, "list")
def list_schedules(session: Session) -> None:
    """List the schedules of all environments of the database, with their next due times."""
    with session.deployed() as database:
        found = schedules(database).schedules
    rows = [
        (
            each.schedule,
            each.due,
            _time(each.next_due),
            _time(each.last_due),
            each.destination,
            each.message_type,
            _state(each.paused, each.late_ms, each.requested_at),
        )
        for each in found
    ]
    none = "There are no schedules. To declare one, write it below `schedules:`, or use @endpoint.every(…)."
    columns = ("schedule", "due", "next due (UTC)", "last sent for (UTC)", "to", "type", "state")
    session.listing(found, columns, rows, none=none)


@command(app, "next")
def show_next(
    session: Session,
    name: NameArgument,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=MOST_TIMES, help="How many due times.")] = 10,
) -> None:
    """Show when a schedule is due next, by the server's clock."""
    with session.deployed() as database:
        found = next_times(database, session.text(name), count)
    session.listing(found, ("due (UTC)",), [(_time(each),) for each in found.times], none="Nothing is due any more.")


@command(app)
def pause(session: Session, name: NameArgument, reason: ReasonOption = None) -> None:
    """Send no messages of a schedule, on all hosts. What is due meanwhile is not sent afterwards."""
    _execute(session, PauseSchedule(schedule=session.text(name), reason=reason))


@command(app)
def resume(session: Session, name: NameArgument, reason: ReasonOption = None) -> None:
    """Send the messages of a paused schedule again, from its next due time on."""
    _execute(session, ResumeSchedule(schedule=session.text(name), reason=reason))


@command(app)
def run(session: Session, name: NameArgument, reason: ReasonOption = None) -> None:
    """Let a supervisor send one message of a schedule now. Its due times stay as they are."""
    _execute(session, RunSchedule(schedule=session.text(name), reason=reason))


def _execute(session: Session, operation: Operation[ScheduleChanged]) -> None:
    with session.deployed() as database:
        session.result(operation.execute(database, OPERATOR))


def _time(text: str | None) -> str:
    return "-" if text is None else text[:19].replace("T", " ")


def _state(paused: bool, late_ms: int | None, requested_at: str | None) -> str:
    late = f"late by {late_ms / 1000:,.0f} s" if late_ms and late_ms >= 1000 else ""  # noqa: PLR2004 -- a second
    return ", ".join(filter(None, ("paused" * paused, late, "requested" if requested_at else ""))) or "-"
