"""Types of sagas that go, and correlations that are filled and dropped while a type moves from one to another.

    correlate(database, "Sales_OrderPolicy")                    fills the second correlation from what states hold
    drop_correlation(database, "Sales_OrderPolicy", "OrderId")  drops the first one's column, when nothing is found by it
    drop_saga(database, "Sales_OrderPolicy")                    takes a type away, with every instance

Each but the first is a deployment of its own: the same lock, the same journal, one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from uuid import UUID

from rowpost.database.connection import Connection
from rowpost.deploy.apply import State, fitted, read_state, refuse_newer
from rowpost.deploy.deployment import Deployment, deployment
from rowpost.deploy.diff import JournalEntry
from rowpost.deploy.plan import build_plan, contract_fragments
from rowpost.deploy.saga_entry import MOVING, SagaEntry, saga_names
from rowpost.deploy.scripts import Script, load_scripts, render_script
from rowpost.deploy.sql_text import expand
from rowpost.errors import DeployError, SagaNotDeployed

__all__ = ["Correlated", "correlate", "drop_correlation", "drop_saga", "find_saga"]

BATCH = 1000


class Correlated(NamedTuple):
    """How many instances got their second correlation, and how many have none: their states do not hold it."""

    correlated: int
    missing: int


def find_saga(database: Connection, name: str) -> SagaEntry:
    """Return the registry's entry of a type, by its table's name. Raises SagaNotDeployed."""
    return _find(read_state(database), name)


def correlate(database: Connection, name: str) -> Correlated:
    """Fill the second correlation of instances from their states, a thousand in a transaction; workers go on meanwhile.

    Raises:
        SagaNotDeployed: no such saga. DeployError: it has no second correlation.
        SagaConflict: two states hold the same value. InvalidCorrelation: one holds what is none.
    """
    entry = find_saga(database, name)
    if entry.transitional_name is None:
        raise DeployError(f"The saga {entry.saga_name} has no second correlation: declare one in its class, transitional='…', and run rowpost apply.")
    correlated = missing = 0
    after: UUID | None = None
    while True:
        ((done, left, after),) = database.call("correlate_sagas", entry.saga_name, count=BATCH, after_id=after)
        if after is None:
            return Correlated(correlated, missing)
        correlated += done
        missing += left


def drop_correlation(database: Connection, name: str, correlation: str, *, record: Callable[[], object] = lambda: None) -> None:
    """Drop the column of a correlation by which nothing is found any more; the states keep the property.

    Args:
        record: called in the transaction, to put the operation on record.

    Raises:
        SagaNotDeployed: no such saga.
        DeployError: instances are found by it, or the saga is still on its way from one correlation to another.
    """
    with _changing(database, name) as (running, state, entry):
        if correlation == entry.correlation_name:
            raise DeployError(f"Instances of {entry.saga_name} are found by {correlation}: correlate by another property first.")
        if entry.transitional_name is not None:
            raise DeployError(
                f"The saga {entry.saga_name} moves from {entry.correlation_name} to {entry.transitional_name}: declare it "
                f"correlated by {entry.transitional_name} alone and run rowpost apply, then drop the other."
            )
        running.run_script(_script(database, entry, "drop_correlation", correlation_column=f"Correlation_{correlation}"))
        for each in _journal_of(state, entry):
            if each.script_name.partition(":")[0].endswith(MOVING):
                database.call("forget_script", script_name=each.script_name)
            elif each.object_kind == "table":  # its columns as they are now
                database.call("record_script", **{field: getattr(each, field) for field in _RECORDED})
        record()


def drop_saga(database: Connection, name: str, *, keep_table: bool = False, record: Callable[[], object] = lambda: None) -> None:
    """Take a type's procedures and its entry away, and drop its table with every instance, unless that is to stay.

    Args:
        record: called in the transaction, to put the operation on record.

    Raises:
        SagaNotDeployed: no such saga.
    """
    with _changing(database, name) as (running, state, entry):
        for stem in ("forget",) if keep_table else ("forget", "drop"):
            running.run_script(_script(database, entry, stem))
        for each in _journal_of(state, entry):
            database.call("forget_script", script_name=each.script_name)
        record()


_RECORDED = ("script_name", "script_kind", "script_hash", "object_kind", "object_name")


@contextmanager
def _changing(database: Connection, name: str) -> Iterator[tuple[Deployment, State, SagaEntry]]:
    plan = fitted(database, build_plan(f"saga {name}", load_scripts(database.engine), [], whole=False))
    with deployment(database, plan) as running:
        state = read_state(database)
        refuse_newer(plan, state)
        yield running, state, _find(state, name)


def _find(state: State, name: str) -> SagaEntry:
    sagas = [entry for entry in state.registry if isinstance(entry, SagaEntry)]
    for entry in sagas:
        if name in (entry.saga_name, entry.table_name):
            return entry
    known = ", ".join(entry.saga_name for entry in sagas) or "none"
    raise SagaNotDeployed(f"No saga has the table {name!r} here. Known: {known}.")


def _journal_of(state: State, entry: SagaEntry) -> list[JournalEntry]:
    return [each for each in state.journal if "/saga/" in each.script_name and each.script_name.partition(".sql:")[2] == entry.saga_key]


def _script(database: Connection, entry: SagaEntry, stem: str, **names: str) -> Script:
    scripts = load_scripts(database.engine)
    (script,) = [each for each in scripts.saga_removal if each.stem == stem]
    whole = Script(script.name, expand(script.text, contract_fragments(scripts)))
    text = render_script(whole, saga_names(entry, database.dialect) | names, database.engine)
    return Script(f"{script.name}:{entry.saga_key}", text)
