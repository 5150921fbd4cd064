"""rowpost spark slot create, list, drop: the replication slots of streams with mode=log. These commands start no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowpost.cli.command import YesOption, command
from rowpost.cli.completion import queue_names
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.cli.spark.running import imported, registered_queues
from rowpost.database.connection import Connection

if TYPE_CHECKING:
    from rowpost.database.dialects.slots import Slot

__all__ = ["app"]

app = typer.Typer(help="Create, list and drop the replication slots of streams that read PostgreSQL's log.", no_args_is_help=True)

PrintOption = Annotated[bool, typer.Option("--print", help="Only print the statement, for an administrator to run.")]
_COLUMNS = ("slot", "state", "in use by process", "holds back", "plugin", "kept by standbys")
_WAIT_S = 60.0


@command(app)
def create(
    session: Session,
    queue: Annotated[
        str, typer.Argument(metavar="QUEUE", help="The queue of the stream, or several with commas between them.", autocompletion=queue_names)
    ],
    slot: Annotated[
        str | None, typer.Option("--slot", metavar="NAME", help="The name of the slot. Default: named after database and queues.")
    ] = None,
    only_print: PrintOption = False,
) -> None:
    """Create the slot of a stream before its first start. From then on, the server keeps its log for the stream."""
    from rowpost.database.dialects.slots import create_slot, create_statement, slot_name

    names = [session.name(each) for each in dict.fromkeys(queue.split(","))]
    with session.deployed() as database:
        registered_queues(database, names)
        with imported():
            from rowpost.spark.source.log_slot import check_log
            from rowpost.spark.source.options import check_slot_name
        check_log(database, names)
        connection = database.driver_connection
        if slot is not None:
            check_slot_name(slot)
        name = slot or slot_name(database.dialect.database_name(connection), names)
        if not only_print:
            create_slot(connection, name, _WAIT_S)
        statement = create_statement(name, connection.info.server_version)
    if session.as_json:
        session.document({"slot": name, "created": not only_print, "statement": statement})
    elif only_print:
        session.out.print(statement, markup=False, soft_wrap=True)
    else:
        session.out.print(f"Created the slot {name}. The server keeps its log until a stream has read it.", markup=False)


@command(app, "list")
def list_(session: Session) -> None:
    """List the logical replication slots of this database, also those of other programs."""
    from rowpost.database.dialects.slots import list_slots

    with session.deployed() as database:
        found = list_slots(_postgresql(database))
    if session.as_json:
        session.document(
            [
                {"slot": each.name, "status": each.status, "process": each.process, "held_bytes": each.held_bytes, "plugin": each.plugin}
                for each in found
            ]
        )
    elif found:
        table(session.out, _COLUMNS, [_row(each) for each in found], right=("holds back",))
    else:
        session.out.print("There are no logical replication slots in this database.")


@command(app)
def drop(
    session: Session,
    slot: Annotated[str, typer.Argument(metavar="SLOT", help="The name of the slot.")],
    only_print: PrintOption = False,
    yes: YesOption = False,
) -> None:
    """Drop a slot, so that the server no longer keeps its log. A stream that reads it cannot continue afterwards."""
    from rowpost.database.dialects.slots import drop_slot, drop_statement, list_slots

    with session.deployed() as database:
        connection = _postgresql(database)
        found = next(iter(list_slots(connection, slot)), None)
        if found is None:
            raise Refused(f"There is no slot {slot!r} in this database. To list the slots, run: rowpost spark slot list", ExitCode.NOT_FOUND)
        if not only_print:
            session.confirm(
                f"Drop the slot {slot}, which holds back {_size(found)} of log in {session.settings.target}? Its stream cannot continue.", yes
            )
            drop_slot(connection, slot)
    if session.as_json:
        session.document({"slot": slot, "dropped": not only_print, "statement": drop_statement(slot)})
    elif only_print:
        session.out.print(drop_statement(slot), markup=False, soft_wrap=True)
    else:
        session.out.print(f"Dropped the slot {slot}.", markup=False)


def _postgresql(database: Connection) -> Any:
    if database.engine != "postgresql":
        raise Refused("Only PostgreSQL has replication slots, and this environment's server is a SQL Server.", ExitCode.FAILED)
    return database.driver_connection


def _row(slot: Slot) -> tuple[object, ...]:
    return (
        slot.name,
        "lost" if slot.is_lost else slot.status or "-",
        slot.process or "-",
        _size(slot),
        slot.plugin,
        "yes" if slot.failover else "no",
    )


def _size(slot: Slot) -> str:
    return f"{(slot.held_bytes or 0) / (1 << 20):,.1f} MiB"
