"""Deploying a plan: one lock, one transaction, the journal's word on what is left to do.

    difference(database, plan)              what would change
    apply(database, plan)                   change it: all of it, or nothing
    apply(database, plan, by_queue=True)    the same in several transactions, each of them all or nothing

Two deployments at once: the second waits for the first one's lock, reads the journal then, and finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from itertools import count

from rowpost.database.connection import Connection
from rowpost.deploy.deployment import Deployment, deployment, locked, refuse_open_transaction
from rowpost.deploy.diff import JournalEntry, PlanDiff, compare
from rowpost.deploy.features import Declared, Kept
from rowpost.deploy.parts import outcome, parts_by_queue, whole_part
from rowpost.deploy.plan import Entry, Plan, build_plan
from rowpost.deploy.queue_entry import QueueEntry
from rowpost.deploy.runner import is_babelfish
from rowpost.deploy.saga_entry import SagaEntry
from rowpost.deploy.scripts import Script
from rowpost.deploy.subscription_entry import SubscriptionEntry
from rowpost.deploy.taken import refuse_taken
from rowpost.errors import DeployError, RowpostError, SchemaMissing, SchemaTooNew, ScriptEdited

__all__ = [
    "ApplyResult",
    "Progress",
    "State",
    "adapt_for_babelfish",
    "apply",
    "compare_with",
    "difference",
    "fitted",
    "read_state",
    "refuse_newer",
]

LIST_SAGAS = "procedures/saga/list_saga_types.sql"
LIST_SUBSCRIPTION_TABLES = "procedures/pubsub/list_subscription_tables.sql"
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
    if LIST_SUBSCRIPTION_TABLES in ran:  # else an earlier release has deployed
        registry += _entries(database, "list_subscription_tables", SubscriptionEntry)
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
    """Return what apply would change on this server now. Raises SchemaTooNew, and DeployError where something else has the name of a new table."""
    plan = fitted(database, plan)
    try:
        state = read_state(database)
    except SchemaMissing:
        diff = compare(plan, (), ())
    else:
        refuse_newer(plan, state)
        diff = compare_with(database, plan, state)
    refuse_taken(database, diff)
    return diff


def apply(database: Connection, plan: Plan, progress: Progress | None = None, *, by_queue: bool = False) -> ApplyResult:
    """Run the plan's script, minus what is there already.

    Args:
        by_queue: one transaction for the shared objects, and one for each queue and saga, instead of one for everything. The lock
            of deployments is held from the first to the last one. After an error, what is committed stays, and the next apply
            does the rest.

    Raises:
        DeployError: the server refused a batch; the message names file, batch and line, and what is committed. Nothing else was changed.
            Or something else has the name of a new table, and nothing was changed.
        ScriptEdited, SchemaTooNew, QueueNameConflict: nothing else was changed either.
        SchemaMissing: the plan is of single queues, and nothing is deployed here.
    """
    refuse_open_transaction(database)  # before looking: a look that fails would end it
    plan = fitted(database, plan)
    with locked(database, plan) if by_queue else nullcontext():
        fresh = plan.whole and not _is_deployed(database)
        with deployment(database, plan) as running:
            state, diff = _compare_under_lock(database, plan, running, fresh)
            new = tuple(each for each in plan.declared if (plan.environment, each) not in state.declared) if plan.whole else ()
            parts = parts_by_queue(diff, new) if by_queue else (whole_part(diff, new),)
            tell = _numbered(diff, progress)
            running.run_part(parts[0], tell)
            ours = (plan.schema_version, plan.tool_version)
            if plan.whole and (state.schema_version, state.tool_version) != ours:
                database.call("record_version", schema_version=plan.schema_version, tool_version=plan.tool_version)
        for done in range(1, len(parts)):
            after = outcome(parts, done)
            try:
                with deployment(database, plan, after) as running:
                    running.run_part(parts[done], tell)
            except RowpostError as error:
                if str(error).endswith(after):
                    raise
                raise type(error)(f"{error} {after}") from error
    applied = tuple(change.name for change in diff.changes if change.runs and change.state != "everytime")
    dropped = tuple(entry.script_name for entry in diff.dropped)
    return ApplyResult(applied, len(diff.unchanged), diff.altered, diff.undeclared, dropped, diff.kept)


def _compare_under_lock(database: Connection, plan: Plan, running: Deployment, fresh: bool) -> tuple[State, PlanDiff]:
    """Compare the plan with the server while no other deployment runs. Raises SchemaTooNew, DeployError and ScriptEdited."""
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
            f"One-time scripts were edited after they ran here: {', '.join(diff.edited)}. Restore them and put the change into a new script."
        )
    refuse_taken(database, diff)
    return state, diff


def _numbered(diff: PlanDiff, progress: Progress | None) -> Callable[[str], None]:
    total, numbers = sum(change.runs for change in diff.changes), count(1)
    return lambda name: None if progress is None else progress(next(numbers), total, name)


def _refuse_other_schema(plan: Plan, state: State) -> None:
    refuse_newer(plan, state)
    if not plan.whole and state.schema_version < plan.schema_version:
        raise DeployError(f"The database has schema {state.schema_version}, and this rowpost brings {plan.schema_version}: run rowpost apply first.")


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
    return replace(build_plan(plan.environment, adapted, plan.entries, plan.whole, plan.features, plan.woken), uncertain=plan.uncertain)


def _is_deployed(database: Connection) -> bool:
    try:
        read_state(database)
    except SchemaMissing:
        return False
    return True
