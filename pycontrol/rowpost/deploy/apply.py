"""Deploying a plan: one lock, one transaction, the journal's word on what is left to do.

    difference(database, plan)   what would change
    apply(database, plan)        change it: all of it, or nothing

Two deployments at once: the second waits for the first one's lock, reads the journal then, and finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace

from rowpost.database.connection import Connection
from rowpost.deploy.contract_sql import drop_empty_table, drop_object
from rowpost.deploy.diff import Change, JournalEntry, PlanDiff, compare
from rowpost.deploy.features import Declared, Kept
from rowpost.deploy.plan import Entry, Plan, Step, build_plan
from rowpost.deploy.queue_entry import QueueEntry
from rowpost.deploy.runner import BatchError, BatchRunner, SqlserverRunner, is_babelfish
from rowpost.deploy.saga_entry import SagaEntry
from rowpost.deploy.scripts import Script
from rowpost.deploy.sql_text import SqlTextError, split_batches
from rowpost.errors import DeployError, SchemaMissing, SchemaTooNew, ScriptEdited

__all__ = [
    "ApplyResult",
    "Deployment",
    "Progress",
    "State",
    "adapt_for_babelfish",
    "apply",
    "compare_with",
    "deployment",
    "difference",
    "fitted",
    "read_state",
    "refuse_newer",
]

LIST_SAGAS = "procedures/saga/list_saga_types.sql"
LIST_FEATURES = "procedures/deploy/list_features.sql"

#: A test sets this to run on Babelfish, an engine for tests only: it returns each script as Babelfish can run it.
adapt_for_babelfish: Callable[[Script], Script] | None = None

#: called before each item with its number from 1, how many there are, and its name
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class ApplyResult:
    """What a deployment did. Names are those of scripts, and `queue <name>`, `saga <name>` for entries of the registry.

    `altered` are tables whose columns somebody changed by hand: left alone. `undeclared` are registered queues and sagas that
    the environment does not declare: deployed like the others. `dropped` are scripts whose objects were dropped, because
    the environment no longer declares their features, or the release that was gone back to does not have them. `kept` are features
    that stay although the environment does not declare them.
    """

    applied: tuple[str, ...] = ()
    unchanged: int = 0
    altered: tuple[str, ...] = ()
    undeclared: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    kept: tuple[Kept, ...] = ()


@dataclass(frozen=True)
class State:
    """What a server has: journal, registry, the newest schema number (0 if none was recorded), and who declared which feature."""

    journal: tuple[JournalEntry, ...]
    registry: tuple[Entry, ...]
    schema_version: int
    tool_version: str
    declared: tuple[Declared, ...] = ()


def read_state(database: Connection) -> State:
    """Read journal, registry and version. Raises SchemaMissing where nothing is deployed."""
    journal = tuple(JournalEntry(*row) for row in database.call("list_scripts"))
    registry = _entries(database, "list_queues", QueueEntry)
    ran = {entry.script_name for entry in journal}
    if LIST_SAGAS in ran:  # else the feature is not deployed
        registry += _entries(database, "list_saga_types", SagaEntry)
    declared = tuple((row.environment, row.feature) for row in database.call("list_features")) if LIST_FEATURES in ran else ()
    version = database.call("get_version")
    schema_version, tool_version = version[0][:2] if version else (0, "")
    return State(journal, registry, schema_version, tool_version, declared)


def compare_with(database: Connection, plan: Plan, state: State) -> PlanDiff:
    """Compare a plan with the state of a server, which is asked for rows in tables that the environment no longer declares."""

    def has_rows(script_name: str) -> bool:
        return bool(database.call("has_rows", script_name=script_name)[0].has_rows)

    return compare(plan, state.journal, state.registry, state.declared, has_rows)


def _entries(database: Connection, procedure: str, kind: type[Entry]) -> tuple[Entry, ...]:
    names = [each.name for each in fields(kind)]
    return tuple(kind(**{name: getattr(row, name) for name in names}) for row in database.call(procedure))


def refuse_newer(plan: Plan, state: State) -> None:
    """Raise SchemaTooNew where a newer rowpost has deployed."""
    if state.schema_version > plan.schema_version:
        raise SchemaTooNew(
            f"The database has schema {state.schema_version}, deployed by rowpost {state.tool_version}; this rowpost "
            f"brings schema {plan.schema_version}. Use a rowpost at least as new as the database's."
        )


def difference(database: Connection, plan: Plan) -> PlanDiff:
    """What apply would change on this server now. Raises SchemaTooNew."""
    plan = fitted(database, plan)
    try:
        state = read_state(database)
    except SchemaMissing:
        return compare(plan, (), ())
    refuse_newer(plan, state)
    return compare_with(database, plan, state)


def apply(database: Connection, plan: Plan, progress: Progress | None = None) -> ApplyResult:
    """Run the plan's script, minus what is there already, in one transaction.

    Raises:
        DeployError: the server refused a batch; the message names file, batch and line. Nothing was changed.
        ScriptEdited, SchemaTooNew, QueueNameConflict: nothing was changed either.
        SchemaMissing: the plan is of single queues, and nothing is deployed here.
    """
    _refuse_open_transaction(database)  # before looking: a look that fails would end it
    plan = fitted(database, plan)
    fresh = plan.whole and not _is_deployed(database)
    with deployment(database, plan) as running:
        if fresh:
            # The procedures that read the journal. Somebody else may have been first: then this changes nothing.
            for step in plan.steps:
                if step.owner is None and step.kind != "everytime":
                    running.run(step)
        state = read_state(database)
        _refuse_other_schema(plan, state)
        diff = compare_with(database, plan, state)
        if diff.edited:
            raise ScriptEdited(
                f"One-time scripts were edited after they ran here: {', '.join(diff.edited)}. "
                "Restore them and put the change into a new script."
            )
        running.drop(diff.dropped)
        running.run_changes(diff.changes, progress)
        if plan.whole:
            running.record_features(plan, state, diff)
        ours = (plan.schema_version, plan.tool_version)
        if plan.whole and (state.schema_version, state.tool_version) != ours:
            database.call("record_version", schema_version=plan.schema_version, tool_version=plan.tool_version)
    applied = tuple(change.name for change in diff.changes if change.runs and change.state != "everytime")
    dropped = tuple(entry.script_name for entry in diff.dropped)
    return ApplyResult(applied, len(diff.unchanged), diff.altered, diff.undeclared, dropped, diff.kept)


def _refuse_other_schema(plan: Plan, state: State) -> None:
    refuse_newer(plan, state)
    if not plan.whole and state.schema_version < plan.schema_version:
        raise DeployError(
            f"The database has schema {state.schema_version}, and this rowpost brings {plan.schema_version}: "
            "run rowpost apply first."
        )


class Deployment:
    """A deployment's open transaction, which holds the lock."""

    def __init__(self, database: Connection, runner: BatchRunner) -> None:
        self._database, self._runner = database, runner
        self._done: set[str] = set()

    def run_changes(self, changes: tuple[Change, ...], progress: Progress | None = None) -> None:
        """Run what needs running, in order, then write it into the journal."""
        todo = [change for change in changes if change.runs]
        for number, change in enumerate(todo, 1):
            if progress is not None:
                progress(number, len(todo), change.name)
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
            if entry.object_name is not None and entry.living_fingerprint is not None:
                spell = drop_empty_table if entry.object_kind == "table" else drop_object
                self.run_script(Script(entry.script_name, spell(self._database.engine, entry.object_name)))
            self._database.call("forget_script", script_name=entry.script_name)

    def record_features(self, plan: Plan, state: State, diff: PlanDiff) -> None:
        """Record what the environment declares, and forget what it no longer does."""
        for feature in diff.forgotten:
            self._database.call("forget_feature", environment=plan.environment, feature=feature)
        for feature in plan.declared:
            if (plan.environment, feature) not in state.declared:
                self._database.call("record_feature", environment=plan.environment, feature=feature)

    def register(self, entry: Entry) -> None:
        """Enter a queue or a saga into the registry; an adopted queue must have its table."""
        if isinstance(entry, SagaEntry):
            # rule upsert_in_transaction: the deployment has begun one
            self._database.call("register_saga", **asdict(entry))
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
            raise DeployError(f"{script.name}: line {error.line}: {error.problem}. Nothing was changed.") from error
        for batch in batches:
            try:
                self._runner.run(batch, bare)
            except BatchError as error:
                where = f"{script.name}: batch {batch.number}, line {error.line}"
                raise DeployError(f"{where}: {error.problem.rstrip('.')}. Nothing was changed.") from error


@contextmanager
def deployment(database: Connection, plan: Plan) -> Iterator[Deployment]:
    """A transaction with the deployment lock: commits at the end of the block, rolls back when it raises."""
    _refuse_open_transaction(database)
    runner = _runner(database)
    running = Deployment(database, runner)
    try:
        running.run_script(plan.scripts.begin, bare=True)
        yield running
        running.run_script(plan.scripts.commit, bare=True)
    except BaseException:
        runner.rollback()
        raise


def fitted(database: Connection, plan: Plan) -> Plan:
    """Return the plan as this server can run it. Raises DeployError, or UnsupportedServer for an old compatibility level."""
    if database.engine != plan.engine:
        raise DeployError(f"The plan is for {plan.engine}, the connection leads to {database.engine}.")
    if not is_babelfish(database):
        with database.translated():
            database.dialect.check_deployable(database.driver_connection)
        return plan
    if adapt_for_babelfish is None:
        raise DeployError("The server is Babelfish, which rowpost does not support: use SQL Server, Azure SQL or PostgreSQL instead.")
    adapted = plan.scripts.adapted(adapt_for_babelfish)
    return replace(build_plan(plan.environment, adapted, plan.entries, plan.whole, plan.features), uncertain=plan.uncertain)


def _refuse_open_transaction(database: Connection) -> None:
    if database.in_transaction:
        raise DeployError("A transaction is open on this connection: deploy on a connection of its own.")


def _runner(database: Connection) -> BatchRunner:
    return BatchRunner(database) if database.engine == "postgresql" else SqlserverRunner(database)


def _is_deployed(database: Connection) -> bool:
    try:
        read_state(database)
    except SchemaMissing:
        return False
    return True


def _is_recorded(change: Change) -> bool:
    """Whether an everytime script stands in the journal as it is: it leaves no object whose state could be new."""
    if change.state != "everytime" or change.entry is None or not isinstance(change.item, Step):
        return False
    return change.entry.script_hash == change.item.hash
