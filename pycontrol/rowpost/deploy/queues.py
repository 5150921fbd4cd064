"""Queues that come and go one at a time, and the rights of those who use them.

Each change is a deployment of its own: the same lock, the same journal, one transaction.

    create_queue(database, "Sales")                 makes table and procedures
    adopt_queue(database, "Billing")                gives procedures to a table that is there
    add_external(database, "Legacy.Orders@[nsb]")   a queue that rowpost only sends to
    forget_queue(database, "Billing")               takes the procedures away; table and messages stay
    drop_queue(database, "Sales")                   and the table with every message in it
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from rowpost.database.connection import Connection
from rowpost.database.contract import load_contract
from rowpost.database.dialects.choice import dialect_for
from rowpost.deploy.apply import ApplyResult, Progress, apply, fitted, read_state, refuse_newer
from rowpost.deploy.deployment import deployment
from rowpost.deploy.grants import grant_execute, grant_role, grant_tables
from rowpost.deploy.plan import build_plan, contract_fragments, declared_features, deployed_features
from rowpost.deploy.queue_entry import (
    QueueEntry,
    delayed_feature,
    describe_queue,
    queue_names,
    wake_up_feature,
)
from rowpost.deploy.scripts import Script, ScriptSet, load_scripts, render_script
from rowpost.deploy.sql_text import expand
from rowpost.errors import DeployError, QueueNotFound
from rowpost.settings.environment import QueueSettings, Settings
from rowpost.wire.address import parse_address, queue_key

__all__ = [
    "add_external",
    "adopt_queue",
    "create_queue",
    "drop_queue",
    "forget_queue",
    "grant",
    "grant_statements",
]

ENDPOINT_ROLE = "rowpost_endpoint"


def create_queue(
    database: Connection,
    name: str,
    *,
    body_string: bool = False,
    clustered: bool = True,
    delayed: bool = True,
    progress: Progress | None = None,
) -> ApplyResult:
    """Make a queue, or bring one that is there up to date: its result says what was missing.

    Raises:
        InvalidQueueName, QueueNameConflict: no such queue can be made.
        SchemaMissing: rowpost apply has not run here.
        DeployError: the server refused; nothing was changed.
    """
    return _enter(database, QueueSettings(name, "own", body_string, clustered, delayed), progress)


def adopt_queue(
    database: Connection,
    name: str,
    *,
    body_string: bool = False,
    clustered: bool = True,
    delayed: bool = True,
    progress: Progress | None = None,
) -> ApplyResult:
    """Give procedures to a queue table made elsewhere, and the table what it lacks. Raises as create_queue does."""
    return _enter(database, QueueSettings(name, "adopted", body_string, clustered, delayed), progress)


def add_external(database: Connection, name: str, progress: Progress | None = None) -> ApplyResult:
    """Register a queue that is not ours: it gets the procedures that send, and those that operators use for single messages. Raises as create_queue does."""
    return _enter(database, QueueSettings(name, "external"), progress)


def forget_queue(database: Connection, name: str) -> None:
    """Take a queue's procedures and its entry away; its table and its messages stay. Raises QueueNotFound."""
    _leave(database, name, drop=False)


def drop_queue(database: Connection, name: str) -> None:
    """Take a queue away, and drop its table with every message in it.

    Raises:
        QueueNotFound: no such queue is registered.
        DeployError: the queue is external: its table is not ours to drop.
    """
    _leave(database, name, drop=True)


def _enter(database: Connection, settings: QueueSettings, progress: Progress | None) -> ApplyResult:
    entry = describe_queue(settings, database.engine)
    scripts = load_scripts(database.engine)
    features = deployed_features(scripts, (each.script_name for each in read_state(database).journal))
    part = build_plan(f"queue {entry.queue_name}", scripts, [entry], whole=False, features=features)
    return apply(database, part, progress)


def _leave(database: Connection, name: str, drop: bool) -> None:
    plan = fitted(database, build_plan(f"queue {name}", load_scripts(database.engine), [], whole=False))
    canonical = parse_address(name).qualified(database.engine).short(database.engine).format()
    with deployment(database, plan) as running:
        state = read_state(database)
        refuse_newer(plan, state)
        queues = (each for each in state.registry if isinstance(each, QueueEntry))
        entry = next((each for each in queues if each.title == f"queue {canonical}"), None)
        if entry is None:
            raise QueueNotFound(f"No queue named {canonical!r} is registered. rowpost queue list shows those that are.")
        if drop and entry.kind == "external":
            raise DeployError(f"The queue {canonical!r} is external: its table is not ours to drop. Forget it instead.")
        for script in (plan.scripts.forget, *([plan.scripts.drop] if drop else [])):
            running.run_script(_rendered(plan.scripts, script, entry))
        for each in state.journal:
            if each.script_name.partition(".sql:")[2] == entry.queue_key:
                database.call("forget_script", script_name=each.script_name)
        for environment, feature in state.declared:
            if feature in (delayed_feature(entry), wake_up_feature(entry)):
                database.call("forget_feature", environment=environment, feature=feature)


def _rendered(scripts: ScriptSet, script: Script, entry: QueueEntry) -> Script:
    whole = Script(script.name, expand(script.text, contract_fragments(scripts)))
    text = render_script(whole, queue_names(entry, dialect_for(scripts.engine)), scripts.engine)
    return Script(f"{script.name}:{entry.queue_key}", text)


class _HasEngine(Protocol):
    @property
    def engine(self) -> str: ...


def grant_statements(
    where: _HasEngine,
    login: str,
    receive_from: Iterable[str] = (),
    send_to: Iterable[str] = (),
    purge: Iterable[str] = (),
    *,
    sagas: Iterable[str] = (),
    tables: bool = False,
) -> list[str]:
    """Return the statements that let an endpoint's login work, for a DBA to read and run; `where` is settings or a database.

    It may then receive from its own queues, send to its destinations (the error queue among them), keep the state of
    its sagas, and empty the queues that are purged when the endpoint starts. It gets no right on any table, unless
    `tables` asks for the rights on tables with which NServiceBus's own endpoints work.
    """
    dialect = dialect_for(where.engine)
    features = _features(where)
    receive_from, send_to, purge, sagas = list(receive_from), list(send_to), list(purge), list(sagas)
    plain = _without_delayed_table(where)
    sides = (("receive", receive_from), ("send", send_to))
    wanted = [
        (procedure, name)
        for side, names in sides
        for name in names
        for procedure in load_contract().templates(delayed=name not in plain, features=features)
        if procedure.side == side
    ]
    wanted += [(load_contract().find("purge_queue", "queue"), name) for name in purge]
    moving = _moving_sagas(where) if sagas else set()
    wanted += [(each, name) for name in sagas for each in load_contract().saga_templates(name in moving) if each.side == "receive"]
    grants = [grant_execute(dialect, procedure, queue_key(parse_address(name), where.engine), login) for procedure, name in wanted]
    if tables:
        entries = [describe_queue(QueueSettings(name, "external"), where.engine) for name in [*receive_from, *send_to]]
        names = [(name, queue_names(entry, dialect)) for name, entry in zip((*receive_from, *send_to), entries, strict=True)]
        wanted_tables = [each["queue_table"] for _, each in names]
        wanted_tables += [each["delayed_table"] for name, each in names if name not in plain]
        saga_tables = [parse_address(name).qualified(where.engine) for name in sagas]
        wanted_tables += [f"{dialect.quote(str(each.schema))}.{dialect.quote(each.table)}" for each in saga_tables]
        grants += [grant_tables(dialect, table, login) for table in dict.fromkeys(wanted_tables)]
    return [grant_role(dialect, ENDPOINT_ROLE, login), *grants]


def _without_delayed_table(where: _HasEngine) -> set[str]:
    """Queues that have no procedures for delayed messages, as far as anybody can tell."""
    if isinstance(where, Connection):
        return {row.queue_name for row in where.call("list_queues") if not row.delayed}
    return {queue.name for queue in getattr(where, "queues", ()) if not queue.delayed or queue.kind == "external"}


def _features(where: _HasEngine) -> frozenset[str]:
    """Return the features whose procedures the queues have."""
    scripts = load_scripts(where.engine)
    if isinstance(where, Connection):
        return deployed_features(scripts, (row.script_name for row in where.call("list_scripts")))
    return declared_features(where, scripts) if isinstance(where, Settings) else frozenset(scripts.contract.features)


def _moving_sagas(where: _HasEngine) -> set[str]:
    """Sagas that have a procedure for a second correlation."""
    if isinstance(where, Connection):
        return {row.saga_name for row in where.call("list_saga_types") if row.transitional_name}
    return {saga.name for saga in getattr(where, "sagas", ()) if saga.transitional}


def grant(
    database: Connection,
    login: str,
    receive_from: Iterable[str] = (),
    send_to: Iterable[str] = (),
    purge: Iterable[str] = (),
    *,
    sagas: Iterable[str] = (),
    tables: bool = False,
) -> list[str]:
    """Run what grant_statements spells, in one transaction; returns the statements. Raises DeployError."""
    statements = grant_statements(database, login, receive_from, send_to, purge, sagas=sagas, tables=tables)
    plan = fitted(database, build_plan(f"rights of {login}", load_scripts(database.engine), [], whole=False))
    with deployment(database, plan) as running:
        for number, statement in enumerate(statements, 1):
            running.run_script(Script(f"statement {number} of the grants", statement))
    return statements
