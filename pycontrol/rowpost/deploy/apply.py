"""Deploy a plan: one lock, one transaction, and only what the journal does not have.

    difference(database, plan)              what would change
    apply(database, plan)                   change it: all of it, or nothing
    apply(database, plan, by_queue=True)    the same in several transactions, each of them all or nothing

The state of the server is read once, under the lock. A second deployment at the same time waits for the lock, and then
finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count

from rowpost.database.connection import Connection
from rowpost.deploy.deployment import DeploymentTransaction, adapted, check_no_open_transaction, deployment, locked
from rowpost.deploy.diff import PlanDiff, compare
from rowpost.deploy.features import Kept
from rowpost.deploy.parts import outcome, parts_by_queue, whole_part
from rowpost.deploy.plan import Plan
from rowpost.deploy.state import ServerState, check_not_newer, is_deployed, read_state
from rowpost.deploy.taken import check_not_taken
from rowpost.errors import DeployError, RowpostError, SchemaMissing, ScriptEdited

__all__ = ["ApplyResult", "Progress", "apply", "compare_with", "difference"]

#: called before each item with its number from 1, how many there are, and its name
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class ApplyResult:
    """What a deployment did. Names are those of scripts, and `queue <name>`, `saga <name>` for entries of the registry.

    `altered` are tables whose columns somebody changed by hand: left alone. `undeclared` are registered queues and
    sagas that the environment does not declare: deployed like the others. `dropped` are scripts whose objects were
    dropped, because the environment no longer declares their features, or the release that was gone back to does not
    have them. `kept` are features that stay although the environment does not declare them. `removed` are schedules
    that were removed, because the environment no longer declares them.
    """

    applied: tuple[str, ...] = ()
    unchanged: int = 0
    altered: tuple[str, ...] = ()
    undeclared: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    kept: tuple[Kept, ...] = ()
    removed: tuple[str, ...] = ()


def compare_with(database: Connection, plan: Plan, state: ServerState) -> PlanDiff:
    """Compare a plan with the state of a server, which is asked for rows in tables that the environment no longer
    declares.
    """

    def has_rows(script_name: str) -> bool:
        return bool(database.call("has_rows", script_name=script_name)[0].has_rows)

    return compare(plan, state, has_rows)


def difference(database: Connection, plan: Plan) -> PlanDiff:
    """Return what apply would change on this server now.

    Raises SchemaTooNew, and DeployError where something else has the name of a new table.
    """
    plan = adapted(database, plan)
    try:
        state = read_state(database)
    except SchemaMissing:
        state = ServerState()
    check_not_newer(plan.schema_version, state)
    diff = compare_with(database, plan, state)
    check_not_taken(database, diff)
    return diff


def apply(database: Connection, plan: Plan, progress: Progress | None = None, *, by_queue: bool = False) -> ApplyResult:
    """Run the plan's script, minus what is there already.

    Args:
        by_queue: one transaction for the shared objects, and one for each queue and saga, instead of one for
            everything. The lock of deployments is held from the first to the last one. After an error, what is
            committed stays, and the next apply does the rest.

    Raises:
        DeployError: the server refused a batch; the message names file, batch and line, and what is committed. Nothing
            else was changed. Or something else has the name of a new table, and nothing was changed.
        ScriptEdited, SchemaTooNew, QueueNameConflict: nothing else was changed either.
        SchemaMissing: the plan is of single queues, and nothing is deployed here.
    """
    check_no_open_transaction(database)  # first: a call that fails would end it
    plan = adapted(database, plan)
    with locked(database, plan.scripts) if by_queue else nullcontext():
        fresh = plan.whole and not is_deployed(database)
        with deployment(database, plan.scripts) as running:
            state, diff = _compare_under_lock(database, plan, running, fresh)
            new = (
                tuple(each for each in plan.declared if (plan.environment, each) not in state.declared)
                if plan.whole
                else ()
            )
            parts = parts_by_queue(diff, new) if by_queue else (whole_part(diff, new),)
            tell = _numbered(diff, progress)
            running.run_part(parts[0], tell)
            ours = (plan.schema_version, plan.tool_version)
            if plan.whole and (state.schema_version, state.tool_version) != ours:
                database.call("record_version", schema_version=plan.schema_version, tool_version=plan.tool_version)
        for done in range(1, len(parts)):
            after = outcome(parts, done)
            try:
                with deployment(database, plan.scripts, after) as running:
                    running.run_part(parts[done], tell)
            except RowpostError as error:
                if str(error).endswith(after):
                    raise
                raise type(error)(f"{error} {after}") from error
    applied = tuple(change.name for change in diff.to_run if change.state != "everytime")
    dropped = tuple(entry.script_name for entry in diff.dropped)
    return ApplyResult(
        applied,
        len(diff.names("unchanged")),
        diff.names("altered"),
        diff.undeclared,
        dropped,
        diff.kept,
        tuple(entry.title for entry in diff.removed),
    )


def _compare_under_lock(
    database: Connection, plan: Plan, running: DeploymentTransaction, fresh: bool
) -> tuple[ServerState, PlanDiff]:
    """Read the state and compare the plan with it while no other deployment runs.

    Raises SchemaTooNew, DeployError and ScriptEdited.
    """
    if fresh:
        # The procedures that read the journal. Somebody else may have been first: then this changes nothing.
        for step in plan.steps:
            if step.owner is None and step.kind != "everytime":
                running.run(step)
    state = read_state(database)
    check_not_newer(plan.schema_version, state)
    if not plan.whole and state.schema_version < plan.schema_version:
        raise DeployError(
            f"The database has schema {state.schema_version}, and this rowpost brings {plan.schema_version}: run "
            "rowpost apply first."
        )
    diff = compare_with(database, plan, state)
    if edited := diff.names("edited"):
        raise ScriptEdited(
            f"One-time scripts were edited after they ran here: {', '.join(edited)}. Restore them and put the change "
            "into a new script."
        )
    check_not_taken(database, diff)
    return state, diff


def _numbered(diff: PlanDiff, progress: Progress | None) -> Callable[[str], None]:
    total, numbers = len(diff.to_run), count(1)
    return lambda name: None if progress is None else progress(next(numbers), total, name)
