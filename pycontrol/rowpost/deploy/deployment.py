"""Run the transactions of a deployment: scripts, entries of the registry, and records of the journal.

with deployment(database, scripts) as running:       one transaction, which holds the lock of deployments
    running.run_script(script)

with locked(database, scripts):                      the lock over several transactions
    with deployment(database, scripts) as running: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from rowpost.database.connection import Connection
from rowpost.deploy.contract_sql import REVOKE_ROLES, drop_empty_table, drop_object
from rowpost.deploy.diff import PlanChange
from rowpost.deploy.entries import Entry, QueueEntry
from rowpost.deploy.parts import DeploymentPart
from rowpost.deploy.plan import Plan, build_plan
from rowpost.deploy.runner import BatchError, BatchRunner, PostgresqlRunner, SqlserverRunner, is_babelfish
from rowpost.deploy.scripts import ROLES_SCRIPT, Script, ScriptSet, load_scripts
from rowpost.deploy.sql_text import SqlTextError, split_batches
from rowpost.deploy.state import JournalEntry
from rowpost.deploy.steps import ScriptStep
from rowpost.errors import DeployError, RowpostError

__all__ = ["DeploymentTransaction", "adapted", "changing", "check_no_open_transaction", "deployment", "locked"]

NOTHING_CHANGED = "Nothing was changed."
# PostgreSQL has room for 64 locks a connection, and a new queue needs 22.
FEWER_LOCKS = " With `rowpost apply --by-queue`, each queue has a transaction of its own, which needs few locks."

#: a call that writes the journal, as Connection.call_all takes it
JournalCall = tuple[str, None, dict[str, Any]]


class DeploymentTransaction:
    """A deployment's open transaction, which holds the lock. `after_error` says what an error leaves."""

    def __init__(self, database: Connection, runner: BatchRunner, after_error: str = NOTHING_CHANGED) -> None:
        self._database, self._runner, self._after_error = database, runner, after_error
        self._done: set[str] = set()

    def run_part(self, part: DeploymentPart, tell: Callable[[str], None] = lambda name: None) -> None:
        """Run what commits together, then write it into the journal in one round trip.

        `tell` gets the name of each item before it runs.
        """
        for entry in part.removed:
            self._database.call("unregister_schedule", schedule_name=entry.key)
        calls = self.drop(part.dropped)
        for change in part.changes:
            tell(change.name)
            if isinstance(change.item, ScriptStep):
                self.run(change.item)
                if not _is_recorded(change):
                    calls.append(("record_script", None, change.item.record))
            else:
                self.register(change.item)
        for procedure, features in (("forget_feature", part.forgotten), ("record_feature", part.declared)):
            calls += [(procedure, None, {"environment": part.environment, "feature": each.text}) for each in features]
        self.write(calls)

    def write(self, calls: Sequence[JournalCall]) -> None:
        """Write the journal in one round trip."""
        if calls:
            self._database.call_all(calls)

    def drop(self, entries: Iterable[JournalEntry]) -> list[JournalCall]:
        """Drop what these scripts made, tables last, and return the calls that take them out of the journal.

        A table that has rows is an error. Of roles, only their rights go.
        """
        calls: list[JournalCall] = []
        for entry in sorted(entries, key=lambda each: each.object_kind == "table"):
            # of a trigger that somebody dropped, the function may be left; only a table's removal fails if it is gone
            if entry.object_name is not None and (entry.living_fingerprint is not None or entry.object_kind != "table"):
                spell = (
                    drop_empty_table
                    if entry.object_kind == "table"
                    else partial(drop_object, kind=str(entry.object_kind))
                )
                self.run_script(Script(entry.script_name, spell(self._database.engine, entry.object_name)))
            elif entry.script_name == ROLES_SCRIPT:
                self.run_script(Script(entry.script_name, REVOKE_ROLES))
            calls.append(entry.forget_call)
        return calls

    def register(self, entry: Entry) -> None:
        """Enter a queue, a saga, a table of subscriptions or a schedule into the registry.

        An adopted queue must have its table.
        """
        # an upsert: the deployment has begun a transaction
        self._database.call(entry.register, **entry.record)
        if isinstance(entry, QueueEntry) and entry.kind == "adopted":
            findings = [row.finding for row in self._database.call("check_queue", queue_name=entry.name)]
            if "table_missing" in findings:
                raise DeployError(
                    f"The queue {entry.name!r} is to be adopted, but it has no table {entry.schema_name}."
                    f"{entry.table_name}. Correct its name, or let rowpost make it: kind: own"
                )

    def run(self, step: ScriptStep) -> None:
        """Run one script, unless this deployment has run it already."""
        if step.script_name not in self._done:
            self._done.add(step.script_name)
            self.run_script(Script(step.script_name, step.text))

    def run_script(self, script: Script, bare: bool = False) -> None:
        """Run a script's batches. Raises DeployError naming file, batch and line."""
        try:
            batches = split_batches(script.text, self._database.engine)
        except SqlTextError as error:
            raise DeployError(f"{script.name}: line {error.line}: {error.problem}. {self._after_error}") from error
        for batch in batches:
            try:
                self._runner.run(batch, bare)
            except BatchError as error:
                where = f"{script.name}: batch {batch.number}, line {error.line}"
                fewer = FEWER_LOCKS if "max_locks_per_transaction" in error.problem else ""
                raise DeployError(f"{where}: {error.problem.rstrip('.')}. {self._after_error}{fewer}") from error


def adapted(database: Connection, plan: Plan) -> Plan:
    """Return the plan as this server can run it, which is the plan itself.

    Raises DeployError, or UnsupportedServer for an old compatibility level.
    """
    if database.engine != plan.engine:
        raise DeployError(f"The plan is for {plan.engine}, the connection leads to {database.engine}.")
    if is_babelfish(database):
        raise DeployError(
            "The server is Babelfish, which rowpost does not support: use SQL Server, Azure SQL or PostgreSQL instead."
        )
    with database.translated():
        database.dialect.check_deployable(database.driver_connection)
    return plan


@contextmanager
def deployment(
    database: Connection, scripts: ScriptSet, after_error: str = NOTHING_CHANGED
) -> Iterator[DeploymentTransaction]:
    """Run a block in a transaction with the deployment lock: commit at its end, roll back when it raises."""
    check_no_open_transaction(database)
    runner = _runner(database)
    running = DeploymentTransaction(database, runner, after_error)
    try:
        running.run_script(scripts.begin, bare=True)
        yield running
        running.run_script(scripts.commit, bare=True)
    except BaseException:
        runner.rollback()
        raise


@contextmanager
def locked(database: Connection, scripts: ScriptSet) -> Iterator[None]:
    """Hold the lock of deployments over several transactions. The server releases it too when the session ends."""
    running = DeploymentTransaction(database, _runner(database))
    running.run_script(scripts.lock, bare=True)
    try:
        yield
    finally:
        with suppress(RowpostError):
            running.run_script(scripts.unlock, bare=True)


@contextmanager
def changing(
    database: Connection, title: str, scripts: ScriptSet | None = None
) -> Iterator[tuple[DeploymentTransaction, ScriptSet]]:
    """Run a block as a deployment that has no plan: the same lock and one transaction.

    Args:
        title: what is changed.
        scripts: the release's; None for this one's.

    Yields:
        The deployment, and the scripts as this server can run them.
    """
    plan = adapted(database, build_plan(title, scripts or load_scripts(database.engine), [], whole=False))
    with deployment(database, plan.scripts) as running:
        yield running, plan.scripts


def check_no_open_transaction(database: Connection) -> None:
    """Raise DeployError if a transaction is open on the connection."""
    if database.in_transaction:
        raise DeployError("A transaction is open on this connection: deploy on a connection of its own.")


def _runner(database: Connection) -> BatchRunner:
    return PostgresqlRunner(database) if database.engine == "postgresql" else SqlserverRunner(database)


def _is_recorded(change: PlanChange) -> bool:
    """Return whether an everytime script is in the journal as it is: it makes no object whose state could be new."""
    if change.state != "everytime" or change.entry is None or not isinstance(change.item, ScriptStep):
        return False
    return change.entry.script_hash == change.item.hash
