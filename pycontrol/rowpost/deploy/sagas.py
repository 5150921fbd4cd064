"""Types of sagas that go, and correlations that are filled and dropped while a type moves from one to another.

    correlate(database, "Sales_OrderPolicy")                    fills the second correlation from what states hold
    drop_correlation(database, "Sales_OrderPolicy", "OrderId")  drops the first one's column, when nothing is found by it
    drop_saga(database, "Sales_OrderPolicy")                    takes a type away, with every instance

Each but the first is a deployment of its own: the same lock, the same journal, one transaction.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import UUID

from rowpost.database.connection import Connection
from rowpost.deploy.deployment import DeploymentTransaction, changing
from rowpost.deploy.entries import MOVING, SagaEntry
from rowpost.deploy.scripts import ScriptSet
from rowpost.deploy.state import JournalEntry, ServerState, check_not_newer, read_state
from rowpost.deploy.steps import Rendering
from rowpost.errors import DeployError, FeatureMissing, SagaNotDeployed

__all__ = ["Correlated", "correlate", "drop_correlation", "drop_saga", "find_saga", "saga_findings"]

BATCH = 1000


class Correlated(NamedTuple):
    """How many instances got their second correlation, and how many have none: their states do not hold it."""

    correlated: int
    missing: int


def find_saga(database: Connection, name: str) -> SagaEntry:
    """Return the registry's entry of a type, by its table's name. Raises SagaNotDeployed."""
    return _find(read_state(database), name)


def saga_findings(database: Connection) -> list[Any]:
    """Return the rows of check_sagas; none if the feature is not deployed."""
    try:
        return database.call("check_sagas")
    except FeatureMissing:
        return []


def correlate(database: Connection, name: str) -> Correlated:
    """Fill the second correlation of instances from their states, a thousand in a transaction; workers go on meanwhile.

    Raises:
        SagaNotDeployed: no such saga. DeployError: it has no second correlation.
        SagaConflict: two states hold the same value. InvalidCorrelation: one holds what is none.
    """
    entry = find_saga(database, name)
    if entry.transitional_name is None:
        raise DeployError(
            f"The saga {entry.name} has no second correlation: declare one in its class, transitional='…', and run "
            "rowpost apply."
        )
    correlated = missing = 0
    after: UUID | None = None
    while True:
        ((done, left, after),) = database.call("correlate_sagas", entry.name, count=BATCH, after_id=after)
        if after is None:
            return Correlated(correlated, missing)
        correlated += done
        missing += left


def drop_correlation(
    database: Connection, name: str, correlation: str, *, record: Callable[[], object] = lambda: None
) -> None:
    """Drop the column of a correlation by which nothing is found any more; the states keep the property.

    Args:
        record: called in the transaction, to put the operation on record.

    Raises:
        SagaNotDeployed: no such saga.
        DeployError: instances are found by it, or the saga is still on its way from one correlation to another.
    """
    with _changing(database, name) as (running, scripts, state, entry):
        if correlation == entry.correlation_name:
            raise DeployError(
                f"Instances of {entry.name} are found by {correlation}: correlate by another property first."
            )
        if entry.transitional_name is not None:
            raise DeployError(
                f"The saga {entry.name} moves from {entry.correlation_name} to {entry.transitional_name}: declare it "
                f"correlated by {entry.transitional_name} alone and run rowpost apply, then drop the other."
            )
        running.run_script(
            Rendering(scripts).removal(entry, "drop_correlation", correlation_column=f"Correlation_{correlation}")
        )
        scripts_of_saga = _journal_of(state, entry)
        moved = [each for each in scripts_of_saga if each.script_name.partition(":")[0].endswith(MOVING)]
        tables = [each for each in scripts_of_saga if each not in moved and each.object_kind == "table"]
        again = [
            ("record_script", None, {field: getattr(each, field) for field in _RECORDED}) for each in tables
        ]  # with the columns of now
        running.write([*(each.forget_call for each in moved), *again])
        record()


def drop_saga(
    database: Connection, name: str, *, keep_table: bool = False, record: Callable[[], object] = lambda: None
) -> None:
    """Take a type's procedures and its entry away, and drop its table with every instance, unless that is to stay.

    Args:
        record: called in the transaction, to put the operation on record.

    Raises:
        SagaNotDeployed: no such saga.
    """
    with _changing(database, name) as (running, scripts, state, entry):
        for stem in ("forget",) if keep_table else ("forget", "drop"):
            running.run_script(Rendering(scripts).removal(entry, stem))
        running.write([each.forget_call for each in _journal_of(state, entry)])
        record()


_RECORDED = ("script_name", "script_kind", "script_hash", "object_kind", "object_name")


@contextmanager
def _changing(
    database: Connection, name: str
) -> Iterator[tuple[DeploymentTransaction, ScriptSet, ServerState, SagaEntry]]:
    with changing(database, f"saga {name}") as (running, scripts):
        state = read_state(database)
        check_not_newer(scripts.schema_version, state)
        yield running, scripts, state, _find(state, name)


def _find(state: ServerState, name: str) -> SagaEntry:
    for entry in state.sagas:
        if name in (entry.name, entry.table_name):
            return entry
    known = ", ".join(entry.name for entry in state.sagas) or "none"
    raise SagaNotDeployed(f"No saga has the table {name!r} here. Known: {known}.")


def _journal_of(state: ServerState, entry: SagaEntry) -> list[JournalEntry]:
    return [each for each in state.journal if each.is_saga_s and each.key == entry.key]
