"""rowpost queue create, adopt, drop, list, check, grant: which queues exist and who may use them."""

from __future__ import annotations

from typing import Annotated

import typer

from rowpost.cli.command import AllQueuesArgument, QueueArgument, YesOption
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.formats import PEEK_LIMIT, format_count
from rowpost.cli.session import Session
from rowpost.database.connection import Connection
from rowpost.deploy import grants
from rowpost.deploy import queues as registry
from rowpost.deploy.apply import ApplyResult
from rowpost.errors import LockTimeout, PermissionDenied, QueueNotFound
from rowpost.operations.figures import registered_queues
from rowpost.operations.reading import check_queues
from rowpost.settings.descriptor import DESCRIBED
from rowpost.settings.environment import Settings
from rowpost.settings.queue import QueueKind
from rowpost.transport.controls import QueueControl, list_controls
from rowpost.transport.queue import Queue

__all__ = ["adopt", "check", "create", "drop", "grant", "list_queues"]

#: `queue list` counts up to so many messages, and waits so long for a table that is locked
COUNTED, LOCK_TIMEOUT_MS = 1_000, 500
BodyStringOption = Annotated[
    bool, typer.Option("--body-string", help="Add the column BodyString, which shows the body as text in SQL tools.")
]
HeapOption = Annotated[
    bool,
    typer.Option(
        "--heap",
        help="SQL Server: store the table as a heap with a nonclustered index on the row version, for many receivers.",
    ),
]
NoDelayedOption = Annotated[
    bool, typer.Option("--no-delayed", help="Make no table for delayed messages, for queues such as error and audit.")
]
LeaseOption = Annotated[
    bool, typer.Option("--lease", help='Make the table of leases that an endpoint with receive="lease" needs.')
]


def create(
    session: Session,
    name: QueueArgument,
    body_string: BodyStringOption = False,
    heap: HeapOption = False,
    no_delayed: NoDelayedOption = False,
    lease: LeaseOption = False,
    external: Annotated[
        bool, typer.Option("--external", help="A queue that another system owns. rowpost only sends to it.")
    ] = False,
) -> None:
    """Create a queue: its table and its procedures. An existing queue is updated."""
    if external and (body_string or heap or lease):
        raise Refused(
            "rowpost does not make the tables of an external queue: remove --body-string, --heap and --lease.",
            ExitCode.USAGE,
        )
    with session.deployed() as database:
        queue = session.name(name)
        kind: QueueKind = "external" if external else "own"
        result = registry.create_queue(
            database,
            queue,
            kind=kind,
            body_string=body_string,
            clustered=not heap,
            delayed=not no_delayed,
            lease=lease,
        )
    _print_result(session, queue, kind, result)


def adopt(
    session: Session,
    name: QueueArgument,
    body_string: BodyStringOption = False,
    heap: HeapOption = False,
    no_delayed: NoDelayedOption = False,
    lease: LeaseOption = False,
) -> None:
    """Take over a table that NServiceBus made. The table keeps its messages and gets procedures."""
    with session.deployed() as database:
        queue = session.name(name)
        result = registry.create_queue(
            database,
            queue,
            kind="adopted",
            body_string=body_string,
            clustered=not heap,
            delayed=not no_delayed,
            lease=lease,
        )
    _print_result(session, queue, "adopted", result)


def _print_result(session: Session, queue: str, kind: str, result: ApplyResult) -> None:
    document = {"queue": queue, "kind": kind, "applied": result.applied, "unchanged": result.unchanged}
    changes = f"is ready: {len(result.applied)} changes" if result.applied else "already exists and is up to date"
    session.answer(document, f"The queue {queue} ({kind}) {changes}.")


def drop(
    session: Session,
    name: QueueArgument,
    keep_table: Annotated[
        bool, typer.Option("--keep-table", help="Drop the procedures and keep the table with its messages.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Drop a queue with all its messages."""
    with session.deployed() as database:
        queue = session.name(name)
        forget = keep_table or _kind(database, queue) == "external"
        if not forget:
            waiting = session.queue(queue, database).peek(PEEK_LIMIT)
            session.confirm(f"Drop the queue {queue} with {format_count(waiting)} in {session.settings.target}?", yes)
        (registry.forget_queue if forget else registry.drop_queue)(database, queue)
    sentence = f"Dropped the queue {queue}{'; its table stays' if forget else ''}."
    session.answer({"queue": queue, "dropped": not forget}, sentence)


def _kind(database: Connection, queue: str) -> str:
    for row in registered_queues(database):
        if row.queue_name == queue:
            return str(row.kind)
    raise QueueNotFound(
        f"There is no queue named {queue!r} in this database. To list the queues, run: rowpost queue list"
    )


def list_queues(session: Session) -> None:
    """List the queues and how many messages wait in each: counted up to 1,000, above that estimated."""
    with session.deployed() as database:
        rows = registered_queues(database)
        controls = {each.queue: each for each in list_controls(database)}
        database.limit_lock_waits(LOCK_TIMEOUT_MS)
        depths = {row.queue_name: _depth(database, row.queue_name, row.kind, row.depth) for row in rows}
    queues = [
        {
            "queue": name,
            "kind": kind,
            "depth": depths[name][0],
            "estimated": depths[name][1],
            "catalog": catalog,
            "schema": schema,
            "table": place,
            "body_string": body_string,
            "clustered": clustered,
            "delayed": delayed,
            "lease": lease,
            **_control(controls.get(name)),
            **_descriptor(session.settings, name),
        }
        for name, _key, catalog, schema, place, kind, body_string, clustered, delayed, lease, _ in rows
    ]
    described = [key for key in DESCRIBED if any(queue[key] for queue in queues)]
    shown = [
        (
            q["queue"],
            q["kind"],
            _in_words(q["depth"], estimated=q["estimated"]),
            *([_state(controls.get(q["queue"]))] if controls else []),
            *(q[key] for key in described),
        )
        for q in queues
    ]
    columns = ("queue", "kind", "waiting", *(["set by operators"] if controls else []), *described)
    none = "No queue is registered. To make one, run: rowpost queue create QUEUE"
    session.listing(queues, columns, shown, right=("waiting",), none=none)


def _descriptor(settings: Settings, queue: str) -> dict[str, str | None]:
    """Return what the environment says about a queue for people; None for what it does not say."""
    declared = settings.queue(queue)
    return {key: getattr(declared, key, "") or None for key in DESCRIBED}


def _control(control: QueueControl | None) -> dict[str, object]:
    return {"paused": control is not None and control.paused, "limit": None if control is None else control.limit}


def _state(control: QueueControl | None) -> str:
    if control is None:
        return ""
    return f"{control.text}, by {control.changed_by}{f': {control.reason}' if control.reason else ''}"


def _depth(database: Connection, name: str, kind: str, estimate: int | None) -> tuple[int | None, bool]:
    """Return how many messages wait, and whether that is an estimate: of more than 1,000, or because the login may not
    count.
    """
    if kind == "external":
        return estimate, True
    try:
        counted = Queue(name, database).peek(COUNTED)
    except (PermissionDenied, QueueNotFound, LockTimeout):
        return estimate, True
    return (counted, False) if counted < COUNTED else (max(counted, estimate or 0), True)


def _in_words(depth: int | None, *, estimated: bool) -> str:
    return "?" if depth is None else f"{'about ' if estimated else ''}{depth:,}"


def check(session: Session, name: AllQueuesArgument = None) -> ExitCode:
    """Check the tables and indexes of queues. Exit code 1 if there is a finding."""
    with session.deployed() as database:
        found = check_queues(database, None if name is None else session.name(name))
    rows = [(each.queue, each.detail, each.remedy) for each in found]
    document = {"clean": not found, "findings": found}
    session.listing(document, ("queue", "finding", "remedy"), rows, none="All queues OK.", instead=True)
    return ExitCode.FINDING if found else ExitCode.OK


def _check_known(session: Session, names: list[str]) -> None:
    """Check that queues are declared in the environment, or else registered in its database. Raises QueueNotFound."""
    undeclared = [name for name in names if session.settings.queue(name) is None]
    if not undeclared:
        return
    with session.deployed() as database:
        registered = {row.queue_name for row in registered_queues(database)}
    for name in undeclared:
        if name not in registered:
            raise QueueNotFound(
                f"There is no queue {name!r}: the environment {session.settings.environment!r} does not declare it, "
                f"and it is not registered in {session.settings.target}. rowpost queue list shows the registered "
                "queues."
            )


def grant(
    session: Session,
    login: Annotated[
        str, typer.Option("--login", help="The database user or role of the endpoint.", show_default=False)
    ],
    receive_from: Annotated[
        list[str] | None,
        typer.Option("--receive-from", metavar="QUEUE", help="A queue from which it receives. May be repeated."),
    ] = None,
    send_to: Annotated[
        list[str] | None, typer.Option("--send-to", metavar="QUEUE", help="A queue to which it sends. May be repeated.")
    ] = None,
    purge_too: Annotated[
        list[str] | None, typer.Option("--purge", metavar="QUEUE", help="A queue that it may purge. May be repeated.")
    ] = None,
    saga: Annotated[
        list[str] | None,
        typer.Option("--saga", metavar="SAGA", help="The table of a saga that it runs. May be repeated."),
    ] = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="Add the table rights that NServiceBus endpoints need.")
    ] = False,
    apply_them: Annotated[bool, typer.Option("--apply", help="Print the statements and run them.")] = False,
    outbox: Annotated[
        str | None,
        typer.Option("--outbox", metavar="NAME", help="Grant the rights in the business database of this outbox."),
    ] = None,
) -> None:
    """Print the statements that grant an endpoint's login the rights on its queues."""
    session = session.databases(outbox)[0]
    login = session.text(login)
    receive, send, purged, sagas = (
        [session.name(each) for each in names or ()] for names in (receive_from, send_to, purge_too, saga)
    )
    _check_known(session, [*receive, *send, *purged])
    wanted = grants.LoginAccess(receive_from=receive, send_to=send, purge=purged, sagas=sagas, tables=tables)
    if apply_them:
        with session.deployed() as database:
            statements = grants.grant(database, login, **wanted)
    else:
        statements = grants.grant_statements(session.settings, login, **wanted)
    if session.as_json:
        session.document({"login": login, "applied": apply_them, "statements": statements})
    else:
        session.out.print("\n".join(statements), soft_wrap=True)
    if apply_them:
        session.note(f"Granted these rights to {login}.")
