"""rowpost sagas drop, correlate, drop-correlation: types of sagas that go, or move from one correlation to another."""

from __future__ import annotations

from typing import Annotated

import typer

from rowpost.cli.command import command
from rowpost.cli.exits import ExitCode
from rowpost.cli.queue import YesOption
from rowpost.cli.sagas import PAGE, SagaArgument
from rowpost.cli.session import Session
from rowpost.deploy import sagas as saga_registry

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app)(drop)
    command(app)(correlate)
    command(app, "drop-correlation")(drop_correlation)


def drop(
    session: Session,
    saga: SagaArgument,
    keep_table: Annotated[
        bool, typer.Option("--keep-table", help="Take the procedures away, and leave the table with its instances.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Take a type of saga away that no endpoint has any more, with every instance of it."""
    with session.deployed() as database:
        entry = saga_registry.find_saga(database, saga)
        if not keep_table:
            found = len(database.call("list_sagas", entry.saga_name, count=PAGE))
            count = f"{found} instances" if found < PAGE else f"{PAGE} instances or more"
            session.confirm(f"Drop the saga {entry.saga_name} with {count} in {session.settings.target}?", yes)
        saga_registry.drop_saga(database, saga, keep_table=keep_table)
    if session.as_json:
        session.document({"saga": entry.saga_name, "dropped": not keep_table})
    else:
        session.note(f"The saga {entry.saga_name} is gone{'; its table stays' if keep_table else ''}.")


def correlate(session: Session, saga: SagaArgument) -> ExitCode:
    """Fill the second correlation of instances that have none; exit code 1 while there are some whose state lacks it."""
    with session.deployed() as database:
        done = saga_registry.correlate(database, saga)
    if session.as_json:
        session.document(done._asdict())
    else:
        session.out.print(f"{saga}: {done.correlated} instances got their second correlation, {done.missing} have none.")
    return ExitCode.FINDING if done.missing else ExitCode.OK


def drop_correlation(
    session: Session,
    saga: SagaArgument,
    correlation: Annotated[str, typer.Argument(metavar="PROPERTY", help="The property by which nothing is found any more, such as OrderId.")],
    yes: YesOption = False,
) -> None:
    """Drop the column of a correlation that sagas have moved away from; their states keep the property."""
    with session.deployed() as database:
        session.confirm(f"Drop the column Correlation_{correlation} of {saga} in {session.settings.target}?", yes)
        saga_registry.drop_correlation(database, saga, correlation)
    if session.as_json:
        session.document({"saga": saga, "dropped": f"Correlation_{correlation}"})
    else:
        session.note(f"{saga} has no column Correlation_{correlation}.")
