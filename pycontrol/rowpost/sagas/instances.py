"""Read the instances of a saga from its table, for people: the types on record, pages of instances, and one
instance.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from rowpost.database.connection import Connection
from rowpost.errors import SagaNotDeployed

__all__ = ["as_id", "find_instance", "find_saga_type", "instance_document", "instances"]

PAGE = 500
LOCK_TIMEOUT_MS = 5000


def find_saga_type(database: Connection, name: str) -> Any:
    """Return the row of list_saga_types for a saga's name or its table. Raises SagaNotDeployed."""
    rows = database.call("list_saga_types")
    for row in rows:
        if name in (row.saga_name, row.table_name):
            return row
    known = ", ".join(row.saga_name for row in rows) or "none"
    raise SagaNotDeployed(f"There is no saga with the table {name!r} in this database. Sagas here: {known}.")


def instances(database: Connection, saga: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of all instances in the order of their ids, read in pages."""
    after_id = None
    while page := database.call("list_sagas", saga, count=PAGE, after_id=after_id):
        yield from page
        after_id = page[-1].id


def find_instance(database: Connection, saga: str, by: str, instance: str) -> dict[str, Any] | None:
    """Return the document of an instance, found by its id or by its correlation value; None if it does not exist.

    Args:
        by: the correlation property, as list_saga_types names it.

    Raises:
        PermissionDenied: the login may only list instances.
    """
    key = as_id(instance)
    for place in ({"id": key}, {"correlation_value": instance}):
        if None not in place.values():
            for row in database.call("load_saga", saga, **place, locked=False, lock_timeout_ms=LOCK_TIMEOUT_MS):
                return instance_document(row.id, row.concurrency, row.data, row.metadata, by)
    return None


def as_id(text: str) -> UUID | None:
    """Return the id that a text is; None if it is none."""
    try:
        return UUID(text)
    except ValueError:
        return None


def instance_document(key: UUID, version: int, data: str, metadata: str, by: str) -> dict[str, Any]:
    """Return an instance as a document: its correlation value, id, version, state and metadata.

    What is no JSON object is in the property `text`, because other programs may write the saga's table.
    """
    state = _object(data)
    return {
        "instance": state.get(by),
        "id": str(key),
        "version": version,
        "state": state,
        "metadata": _object(metadata or "{}"),
    }


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"text": text}
