"""The transactions of a deployment, and what runs in them: scripts, entries of the registry, records of the journal.

with deployment(database, plan) as running:          one transaction, which holds the lock of deployments
    running.run_script(script)

with locked(database, plan):                         the lock over several transactions
    with deployment(database, plan) as running: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial

from rowpost.database.connection import Connection
from rowpost.deploy.contract_sql import drop_empty_table, drop_object
from rowpost.deploy.diff import Change, JournalEntry
from rowpost.deploy.parts import Part
from rowpost.deploy.plan import Entry, Plan
from rowpost.deploy.runner import BatchError, BatchRunner, PostgresqlRunner, SqlserverRunner
from rowpost.deploy.saga_entry import SagaEntry
from rowpost.deploy.scripts import Script
from rowpost.deploy.sql_text import SqlTextError, split_batches
from rowpost.deploy.steps import Step
from rowpost.deploy.subscription_entry import SubscriptionEntry
from rowpost.errors import DeployError, RowpostError

__all__ = ["Deployment", "deployment", "locked", "refuse_open_transaction"]

NOTHING_CHANGED = "Nothing was changed."


class Deployment:
    """A deployment's open transaction, which holds the lock. `after_error` says what an error leaves."""

    def __init__(self, database: Connection, runner: BatchRunner, after_error: str = NOTHING_CHANGED) -> None:
        self._database, self._runner, self._after_error = database, runner, after_error
        self._done: set[str] = set()

    def run_part(self, part: Part, tell: Callable[[str], None]) -> None:
        """Run what commits together. `tell` is called with the name of each item before it runs."""
        self.drop(part.dropped)
        self.run_changes(part.changes, tell)
        for feature in part.forgotten:
            self._database.call("forget_feature", environment=part.environment, feature=feature)
        for feature in part.declared:
            self._database.call("record_feature", environment=part.environment, feature=feature)

    def run_changes(self, changes: tuple[Change, ...], tell: Callable[[str], None] = lambda name: None) -> None:
        """Run what needs running, in order, then write it into the journal."""
        todo = [change for change in changes if change.runs]
        for change in todo:
            tell(change.name)
            if isinstance(change.item, Step):
                self.run(change.item)
            else:
                self.register(change.item)
        for change in todo:
            if isinstance(change.item, Step) and not _is_recorded(change):
                self._database.call("record_script", **change.item.record)

    def drop(self, entries: Iterable[JournalEntry]) -> None:
        """Drop what these scripts made, tables last, and take the scripts out of the journal. A table that has rows is an error."""
        for entry in sorted(entries, key=lambda each: each.object_kind == "table"):
            # of a trigger that somebody dropped, the function may be left; only a table's removal fails if it is gone
            if entry.object_name is not None and (entry.living_fingerprint is not None or entry.object_kind != "table"):
                spell = drop_empty_table if entry.object_kind == "table" else partial(drop_object, kind=str(entry.object_kind))
                self.run_script(Script(entry.script_name, spell(self._database.engine, entry.object_name)))
            self._database.call("forget_script", script_name=entry.script_name)

    def register(self, entry: Entry) -> None:
        """Enter a queue, a saga or a table of subscriptions into the registry; an adopted queue must have its table."""
        if isinstance(entry, SagaEntry):
            # rule upsert_in_transaction: the deployment has begun one
            self._database.call("register_saga", **asdict(entry))
            return
        if isinstance(entry, SubscriptionEntry):
            # rule upsert_in_transaction: the deployment has begun one
            self._database.call("register_subscription_table", **asdict(entry))
            return
        queue = entry
        # rule upsert_in_transaction: the deployment has begun one
        self._database.call("register_queue", **asdict(queue))
        if queue.kind == "adopted":
            findings = [row.finding for row in self._database.call("check_queue", queue_name=queue.queue_name)]
            if "table_missing" in findings:
                raise DeployError(
                    f"The queue {queue.queue_name!r} is to be adopted, but it has no table {queue.schema_name}."
                    f"{queue.table_name}. Correct its name, or let rowpost make it: kind: own"
                )

    def run(self, step: Step) -> None:
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
                raise DeployError(f"{where}: {error.problem.rstrip('.')}. {self._after_error}") from error


@contextmanager
def deployment(database: Connection, plan: Plan, after_error: str = NOTHING_CHANGED) -> Iterator[Deployment]:
    """Run a block in a transaction with the deployment lock: commit at its end, roll back when it raises."""
    refuse_open_transaction(database)
    runner = _runner(database)
    running = Deployment(database, runner, after_error)
    try:
        running.run_script(plan.scripts.begin, bare=True)
        yield running
        running.run_script(plan.scripts.commit, bare=True)
    except BaseException:
        runner.rollback()
        raise


@contextmanager
def locked(database: Connection, plan: Plan) -> Iterator[None]:
    """Hold the lock of deployments over several transactions. The server releases it too when the session ends."""
    running = Deployment(database, _runner(database))
    running.run_script(plan.scripts.lock, bare=True)
    try:
        yield
    finally:
        with suppress(RowpostError):
            running.run_script(plan.scripts.unlock, bare=True)


def refuse_open_transaction(database: Connection) -> None:
    """Raise DeployError if a transaction is open on the connection."""
    if database.in_transaction:
        raise DeployError("A transaction is open on this connection: deploy on a connection of its own.")


def _runner(database: Connection) -> BatchRunner:
    return PostgresqlRunner(database) if database.engine == "postgresql" else SqlserverRunner(database)


def _is_recorded(change: Change) -> bool:
    """Whether an everytime script stands in the journal as it is: it leaves no object whose state could be new."""
    if change.state != "everytime" or change.entry is None or not isinstance(change.item, Step):
        return False
    return change.entry.script_hash == change.item.hash
