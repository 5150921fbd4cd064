"""rowpost queue create, adopt, drop, list, check, grant: which queues there are, and who may use them."""

from __future__ import annotations

from typing import Annotated

import typer

from rowpost.cli.amounts import PEEK_LIMIT, amount
from rowpost.cli.command import command
from rowpost.cli.completion import queue_names
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.database.connection import Connection
from rowpost.deploy import queues as registry
from rowpost.deploy.apply import ApplyResult
from rowpost.errors import QueueNotFound

__all__ = ["QueueArgument", "YesOption", "app"]

app = typer.Typer(help="Make, look at and empty queues.", no_args_is_help=True)

QueueArgument = Annotated[
    str, typer.Argument(metavar="QUEUE", help="A queue's name or address.", autocompletion=queue_names)
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
BodyStringOption = Annotated[
    bool, typer.Option("--body-string", help="Add the column BodyString: the body, readable in any SQL tool.")
]
HeapOption = Annotated[
    bool, typer.Option("--heap", help="SQL Server: a nonclustered row-version index over a heap, for many receivers.")
]
NoDelayedOption = Annotated[
    bool, typer.Option("--no-delayed", help="No table for delayed messages beside it: for queues such as error and audit.")
]


@command(app)
def create(
    session: Session,
    name: QueueArgument,
    body_string: BodyStringOption = False,
    heap: HeapOption = False,
    no_delayed: NoDelayedOption = False,
    external: Annotated[
        bool, typer.Option("--external", help="Somebody else's queue: rowpost only sends to it.")
    ] = False,
) -> None:
    """Make a queue: its table, its procedures. One that is there is brought up to date."""
    if external and (body_string or heap):
        raise Refused("An external queue's table is not ours: leave --body-string and --heap out.", ExitCode.USAGE)
    with session.deployed() as database:
        queue = session.name(name)
        result = (
            registry.add_external(database, queue)
            if external
            else registry.create_queue(
                database, queue, body_string=body_string, clustered=not heap, delayed=not no_delayed
            )
        )
    _print_result(session, queue, "external" if external else "own", result)


@command(app)
def adopt(
    session: Session,
    name: QueueArgument,
    body_string: BodyStringOption = False,
    heap: HeapOption = False,
    no_delayed: NoDelayedOption = False,
) -> None:
    """Take over a table that NServiceBus made: it keeps its messages and gets procedures."""
    with session.deployed() as database:
        queue = session.name(name)
        result = registry.adopt_queue(
            database, queue, body_string=body_string, clustered=not heap, delayed=not no_delayed
        )
    _print_result(session, queue, "adopted", result)


def _print_result(session: Session, queue: str, kind: str, result: ApplyResult) -> None:
    if session.as_json:
        session.document({"queue": queue, "kind": kind, "applied": result.applied, "unchanged": result.unchanged})
    else:
        state = "is ready" if result.applied else "was ready"
        session.note(f"The queue {queue} ({kind}) {state}: {len(result.applied)} changes.")


@command(app)
def drop(
    session: Session,
    name: QueueArgument,
    keep_table: Annotated[
        bool, typer.Option("--keep-table", help="Take the procedures away, and leave the table with its messages.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Take a queue away, with every message in it."""
    with session.deployed() as database:
        queue = session.name(name)
        forget = keep_table or _kind(database, queue) == "external"
        if not forget:
            waiting = session.queue(queue, database).peek(PEEK_LIMIT)
            session.confirm(f"Drop the queue {queue} with {amount(waiting)} in {session.settings.target}?", yes)
        (registry.forget_queue if forget else registry.drop_queue)(database, queue)
    if session.as_json:
        session.document({"queue": queue, "dropped": not forget})
    else:
        session.note(f"The queue {queue} is gone{'; its table stays' if forget else ''}.")


def _kind(database: Connection, queue: str) -> str:
    for row in database.call("list_queues"):
        if row.queue_name == queue:
            return row.kind
    raise QueueNotFound(f"No queue named {queue!r} in this database. rowpost queue list shows those that are.")


@command(app, "list")
def list_queues(session: Session) -> None:
    """List the queues, each with its estimated depth."""
    with session.deployed() as database:
        rows = database.call("list_queues")
    queues = [
        {"queue": name, "kind": kind, "depth": depth, "catalog": catalog, "schema": schema, "table": place,
         "body_string": body_string, "clustered": clustered, "delayed": delayed}
        for name, _key, catalog, schema, place, kind, body_string, clustered, delayed, depth in rows
    ]  # fmt: skip
    if session.as_json:
        session.document(queues)
        return
    shown = [(q["queue"], q["kind"], "?" if q["depth"] is None else f"{q['depth']:,}") for q in queues]
    table(session.out, ("queue", "kind", "about"), shown, right=("about",))
    if not queues:
        session.note("No queue is registered: rowpost queue create makes one.")


@command(app)
def check(
    session: Session,
    name: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="A queue; all by default.", autocompletion=queue_names)
    ] = None,
) -> ExitCode:
    """Compare queue tables with what a queue needs; exit code 1 if something is missing."""
    with session.deployed() as database:
        rows = database.call("check_queue", queue_name=None if name is None else session.name(name))
    if session.as_json:
        keys = ("queue", "finding", "detail", "remedy")
        session.document({"clean": not rows, "findings": [dict(zip(keys, row, strict=True)) for row in rows]})
    elif rows:
        table(session.out, ("queue", "finding", "remedy"), [(queue, detail, cure) for queue, _, detail, cure in rows])
    else:
        session.out.print("Nothing to complain about.")
    return ExitCode.FINDING if rows else ExitCode.OK


@command(app)
def grant(
    session: Session,
    login: Annotated[str, typer.Option("--login", help="The user or role of the endpoint.", show_default=False)],
    receive_from: Annotated[
        list[str] | None, typer.Option("--receive-from", metavar="QUEUE", help="A queue of its own; may be repeated.")
    ] = None,
    send_to: Annotated[
        list[str] | None, typer.Option("--send-to", metavar="QUEUE", help="A destination; may be repeated.")
    ] = None,
    purge_too: Annotated[
        list[str] | None, typer.Option("--purge", metavar="QUEUE", help="A queue it may empty; may be repeated.")
    ] = None,
    saga: Annotated[
        list[str] | None, typer.Option("--saga", metavar="SAGA", help="The table of a saga of its own; may be repeated.")
    ] = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="Also the rights on tables that NServiceBus's own endpoints work with.")
    ] = False,
    apply_them: Annotated[
        bool, typer.Option("--apply", help="Run the statements instead of only printing them.")
    ] = False,
) -> None:
    """Print the statements that let an endpoint's login work with its queues, and with nothing else."""
    login = session.text(login)
    wanted = [[session.name(each) for each in names or ()] for names in (receive_from, send_to, purge_too)]
    sagas = [session.name(each) for each in saga or ()]
    if apply_them:
        with session.deployed() as database:
            statements = registry.grant(database, login, *wanted, sagas=sagas, tables=tables)
    else:
        statements = registry.grant_statements(session.settings, login, *wanted, sagas=sagas, tables=tables)
    if session.as_json:
        session.document({"login": login, "applied": apply_them, "statements": statements})
    else:
        session.out.print("\n".join(statements), soft_wrap=True)
    if apply_them:
        session.note(f"{login} has these rights now.")
