"""rowpost sagas: list, show, drop and correlate saga instances, and show the messages that they handled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any
from uuid import UUID

import msgspec
import typer

from rowpost.cli.command import YesOption, command
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.printing import json_text, table
from rowpost.cli.session import OPERATOR, Session
from rowpost.database.connection import Connection
from rowpost.deploy import sagas as saga_registry
from rowpost.errors import MessageCorrupt
from rowpost.operations.sagas import DropCorrelation, DropSaga, count_instances, saga_types
from rowpost.sagas.instances import as_id, find_instance, find_saga_type, instance_document, instances
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES, INVOKED_SAGAS, MESSAGE_ID, MESSAGE_INTENT, PROCESSING_ENDED
from rowpost.wire.message_types import split_enclosed_types

__all__ = ["PAGE", "SagaArgument", "app"]

app = typer.Typer(help="Inspect and maintain sagas and their instances.", no_args_is_help=True)

PAGE = 500

SagaArgument = Annotated[str, typer.Argument(metavar="SAGA", help="The saga's table, such as Sales_OrderPolicy.")]
InstanceArgument = Annotated[
    str, typer.Argument(metavar="INSTANCE", help="The instance's correlation value, or its id.")
]
OutboxOption = Annotated[
    str | None,
    typer.Option("--outbox", metavar="NAME", help="The saga's endpoint has this outbox.", show_default=False),
]


@command(app, "list")
def list_sagas(
    session: Session,
    saga: Annotated[
        str | None, typer.Argument(metavar="[SAGA]", help="List the instances of this saga.", show_default=False)
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Maximum number of instances.")] = 100,
    outbox: OutboxOption = None,
) -> None:
    """List the sagas that have a table in the database, or the instances of one saga."""
    with session.databases(outbox)[0].deployed() as database:
        if saga is None:
            _list_types(session, database)
            return
        name, by = _registered(session, database, saga)
        found_instances = islice(instances(database, name), count)
        found = [
            instance_document(key, version, data, metadata, by)
            for key, _, version, _, data, metadata in found_instances
        ]
    rows = [
        (each["instance"], each["id"], each["version"], json.dumps(each["state"], ensure_ascii=False)) for each in found
    ]
    columns = ("instance", "id", "version", "state")
    session.listing(found, columns, rows, right=("version",), none="No active instances.")


def _list_types(session: Session, database: Connection) -> None:
    found = saga_types(database).sagas
    none = "No saga has a table here. To make the tables of the environment's endpoints, run: rowpost apply"
    columns = ("saga", "found by", "type", "second", "second type")
    session.listing(found, columns, list(map(msgspec.structs.astuple, found)), none=none)


@command(app)
def show(session: Session, saga: SagaArgument, instance: InstanceArgument, outbox: OutboxOption = None) -> None:
    """Show an instance: its state, its version and its metadata."""
    with session.databases(outbox)[0].deployed() as database:
        found = _find(session, database, *_registered(session, database, saga), instance)
    if session.as_json:
        session.document(found)
        return
    facts = [("instance", found["instance"]), ("id", found["id"]), ("version", found["version"])]
    table(session.out, ("", ""), [*facts, *found["metadata"].items()])
    session.out.print(json_text(found["state"], indent=2))


@command(app)
def history(
    session: Session,
    saga: SagaArgument,
    instance: InstanceArgument,
    audit: Annotated[str, typer.Option("--audit", metavar="QUEUE", help="The audit queue to search.")] = "audit",
    last: Annotated[
        int, typer.Option("--last", min=1, help="Maximum number of messages to search, from the oldest on.")
    ] = 100_000,
    outbox: OutboxOption = None,
) -> None:
    """Show the messages that an instance handled, as far as the audit queue still has them.

    Name a completed instance by its id.
    """
    with session.databases(outbox)[0].deployed() as database:
        name, by = _registered(session, database, saga)
        key = as_id(instance) or UUID(_find(session, database, name, by, instance)["id"])
    with session.deployed() as database:
        found = [
            _entry(headers) for headers in islice(_audited(session, database, audit), last) if _handled_by(headers, key)
        ]
    none = (
        f"No message in {audit} was handled by this instance. Endpoints write copies only if they have an audit_queue."
    )
    rows = [tuple(each.values()) for each in found]
    session.listing(found, ("handled", "message", "intent", "id"), rows, none=none)


@command(app)
def drop(
    session: Session,
    saga: SagaArgument,
    keep_table: Annotated[
        bool, typer.Option("--keep-table", help="Drop the procedures and keep the table with its instances.")
    ] = False,
    yes: YesOption = False,
    outbox: OutboxOption = None,
) -> None:
    """Drop a saga that no endpoint declares any more, with all its instances."""
    session = session.databases(outbox)[0]
    with session.deployed() as database:
        entry = saga_registry.find_saga(database, saga)
        if not keep_table:
            found = count_instances(database, entry.name)
            count = f"{found} instances" if found < PAGE else f"{PAGE} instances or more"
            session.confirm(f"Drop the saga {entry.name} with {count} in {session.settings.target}?", yes)
        session.result(DropSaga(saga=saga, keep_table=keep_table).execute(database, OPERATOR))


@command(app)
def correlate(session: Session, saga: SagaArgument, outbox: OutboxOption = None) -> ExitCode:
    """Fill the transitional correlation column from the instances' states. Exit code 1 if some states have no value."""
    with session.databases(outbox)[0].deployed() as database:
        done = saga_registry.correlate(database, saga)
    filled = f"{saga}: filled the second correlation of {done.correlated} instances"
    session.answer(done._asdict(), f"{filled}; {done.missing} instances have no value.", on_stdout=True)
    return ExitCode.FINDING if done.missing else ExitCode.OK


@command(app, "drop-correlation")
def drop_correlation(
    session: Session,
    saga: SagaArgument,
    correlation: Annotated[
        str,
        typer.Argument(
            metavar="PROPERTY", help="The property that the saga no longer uses to find instances, such as OrderId."
        ),
    ],
    yes: YesOption = False,
    outbox: OutboxOption = None,
) -> None:
    """Drop the column of a correlation property that the saga no longer uses. States keep the property."""
    session = session.databases(outbox)[0]
    with session.deployed() as database:
        session.confirm(f"Drop the column Correlation_{correlation} of {saga} in {session.settings.target}?", yes)
        session.result(DropCorrelation(saga=saga, correlation=correlation).execute(database, OPERATOR))


# ---------------------------------------------------------------------------------------------- from the database
def _registered(session: Session, database: Connection, name: str) -> tuple[str, str]:
    """Return the saga's registered name and its correlation property. Raises SagaNotDeployed."""
    found = find_saga_type(database, session.text(name))
    return found.saga_name, found.correlation_name


def _find(session: Session, database: Connection, saga: str, by: str, instance: str) -> dict[str, Any]:
    """Find an instance by its id or by its correlation value. Raises Refused."""
    found = find_instance(database, saga, by, session.text(instance))
    if found is None:
        raise Refused(
            f"The saga {saga} has no instance {instance!r}. It is completed, or it was never started.",
            ExitCode.NOT_FOUND,
        )
    return found


def _audited(session: Session, database: Connection, audit: str) -> Iterator[dict[str, str | None]]:
    """Yield the headers of the audit queue's messages, oldest first, without those that cannot be read."""
    queue, after_row_version = session.queue(audit, database), None
    while page := queue.browse(PAGE, after_row_version, max_body_bytes=0):
        for message in page:
            try:
                yield message.headers
            except MessageCorrupt:
                continue
        after_row_version = page[-1].row_version


def _handled_by(headers: dict[str, str | None], key: UUID) -> bool:
    return any(each.rpartition(":")[2] == str(key) for each in (headers.get(INVOKED_SAGAS) or "").split(";"))


def _entry(headers: dict[str, str | None]) -> dict[str, str | None]:
    return {
        "handled": headers.get(PROCESSING_ENDED),
        "message": next(iter(split_enclosed_types(headers.get(ENCLOSED_MESSAGE_TYPES))), None),
        "intent": headers.get(MESSAGE_INTENT),
        "id": headers.get(MESSAGE_ID),
    }
