"""rowpost operations list, show, cancel, resume, clean: the operation log, and bulk operations that go on."""

from __future__ import annotations

from typing import Annotated

import typer

from rowpost.cli.bulk import execute
from rowpost.cli.command import command
from rowpost.cli.errors.many import header_values
from rowpost.cli.exits import ExitCode
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.operations.bulk import BulkOperation, request_cancel
from rowpost.operations.log import KEPT_DAYS, LoggedOperation, clean_operation_log, find_operation, list_operations
from rowpost.operations.reading import operation_document

__all__ = ["app"]

app = typer.Typer(help="Read the operation log, and cancel or go on with bulk operations.", no_args_is_help=True)
NumberArgument = Annotated[
    int,
    typer.Argument(
        metavar="OPERATION",
        min=1,
        help="The operation's number, as rowpost operations list shows it.",
        show_default=False,
    ),
]


@command(app, "list")
def list_recorded(
    session: Session,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=1000, help="Maximum number of operations, the last one first.")
    ] = 20,
    before: Annotated[
        int | None, typer.Option("--before", metavar="OPERATION", help="Only operations before this one.")
    ] = None,
) -> None:
    """List what operators did by dashboard and command line, the last operation first."""
    with session.deployed() as database:
        operations = list_operations(database, count, before)
    if session.as_json:
        for operation in operations:
            session.document(operation_document(operation))
        return
    rows = [
        (
            operation.number,
            f"{operation.started_at:%Y-%m-%d %H:%M:%S}",
            operation.who,
            operation.name,
            operation.queue or "",
            operation.state,
            _messages(operation),
            operation.reason or "",
        )
        for operation in operations
    ]
    table(
        session.out,
        ("operation", "began (UTC)", "who", "what", "queue", "state", "messages", "why"),
        rows,
        right=("operation", "messages"),
    )
    if not operations:
        session.note("No operation is on record.")
    elif len(operations) == count:
        session.note(f"Showing the last {count}. For earlier ones, add --before {operations[-1].number}.")


@command(app)
def show(session: Session, number: NumberArgument) -> None:
    """Show an operation: who did what to which queue, when and why, and how far it is."""
    with session.deployed() as database:
        operation = find_operation(database, number)
    document = operation_document(operation)
    if session.as_json:
        session.document(document)
        return
    shown = {
        "operation": operation.number,
        "what": operation.name,
        "state": operation.state,
        "who": (f"{operation.who}, {operation.client}"),
        "queue": operation.queue,
        "message id": operation.message_id,
        **{f"- {name}": value for name, value in document.details.items()},
        "why": operation.reason,
        "began (UTC)": operation.started_at,
        "last report (UTC)": operation.changed_at,
        "ended (UTC)": operation.ended_at,
        "messages": _messages(operation),
        "already gone": operation.gone or None,
        "stay": operation.refused or None,
        "cancelled by": operation.cancelled_by,
        "outcome": operation.outcome,
    }
    table(session.out, ("", ""), [(name, value) for name, value in shown.items() if value is not None])
    if operation.may_go_on:
        session.note(f"To go on with it: rowpost operations resume {operation.number}")


@command(app)
def cancel(session: Session, number: NumberArgument) -> ExitCode:
    """Ask an operation to stop, whichever process executes it. Exit code 1 if it had ended."""
    with session.deployed() as database:
        asked = request_cancel(database, number)
    session.result(asked)
    return ExitCode.OK if asked.cancelled else ExitCode.FINDING


@command(app)
def resume(
    session: Session,
    number: NumberArgument,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            metavar="NAME=VALUE",
            help="For edit-all: the headers as before, because the record has no values.",
        ),
    ] = None,
) -> ExitCode:
    """Go on with a bulk operation that was interrupted, cancelled or failed, behind the last message that it
    finished.
    """
    with session.deployed() as database:
        return execute(session, BulkOperation.resume(database, number, header_values(header)))


@command(app)
def clean(
    session: Session,
    keep: Annotated[
        int, typer.Option("--keep-days", min=1, max=10_000, help="Delete operations that began before so many days.")
    ] = KEPT_DAYS,
) -> None:
    """Delete old operations from the record. Supervisors whose login is an operator do so every hour."""
    with session.deployed() as database:
        removed = clean_operation_log(database, keep)
    what = "operation" if removed == 1 else "operations"
    session.answer({"deleted": removed}, f"Deleted {removed:,} {what} that began more than {keep} days ago.")


def _messages(operation: LoggedOperation) -> str:
    return f"{operation.done:,}" if operation.total is None else f"{operation.done:,} of {operation.total:,}"
