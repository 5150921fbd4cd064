"""Sagas and their instances: read them, and drop a saga or a correlation property that it no longer uses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any
from uuid import UUID

from rowpost.database.connection import Connection
from rowpost.deploy import sagas as saga_registry
from rowpost.errors import FeatureMissing, PermissionDenied, SagaInstanceMissing
from rowpost.operations import documents as made
from rowpost.operations.figures import registered_queues
from rowpost.operations.log import Noted, Operator
from rowpost.operations.operation import Result
from rowpost.sagas.instances import find_instance, find_saga_type, instance_document, instances
from rowpost.transport.delayed_messages import DelayedMessage, DelayedMessages
from rowpost.wire.headers import IS_SAGA_TIMEOUT, SAGA_ID

__all__ = [
    "DropCorrelation", "DropSaga", "DroppedCorrelation", "DroppedSaga", "count_instances", "saga_detail",
    "saga_instance", "saga_instances", "saga_types",
]  # fmt: skip

#: instances that are counted before a saga is dropped
COUNTED = 500
#: instances of a page
INSTANCES = 50
#: instances that are read one after the other if the login may not look one up
LOOKED_THROUGH = 5_000
#: queues, and delayed messages of each, that are read for the timeouts of a saga
TIMEOUT_QUEUES, TIMEOUTS = 20, 1_000


class DroppedSaga(Result, frozen=True):
    """A saga that was dropped. `dropped`: with its table."""

    saga: str
    dropped: bool

    @property
    def sentence(self) -> str:
        return f"Dropped the saga {self.saga}{'' if self.dropped else '; its table stays'}."


class DroppedCorrelation(Result, frozen=True):
    """A column of a saga's table that was dropped."""

    words = "Dropped the column {dropped} of {saga}."
    saga: str
    dropped: str


@dataclass(frozen=True, kw_only=True)
class DropSaga:
    """Drop a saga that no endpoint declares any more, with all its instances, or without its table (`keep_table`)."""

    name = "drop-saga"
    saga: str
    keep_table: bool = False

    def execute(self, database: Connection, operator: Operator) -> DroppedSaga:
        """Drop the saga and record it, in one transaction. Raises SagaNotDeployed, DeployError, PermissionDenied."""
        saga = saga_registry.find_saga(database, self.saga).name
        noted = Noted(done=0, details={"saga": saga, "keep_table": self.keep_table or None})
        record = partial(operator.record, database, self.name, None, noted)
        saga_registry.drop_saga(database, self.saga, keep_table=self.keep_table, record=record)
        return DroppedSaga(saga, not self.keep_table)


@dataclass(frozen=True, kw_only=True)
class DropCorrelation:
    """Drop the column of a correlation property that the saga no longer uses. States keep the property."""

    name = "drop-correlation"
    saga: str
    correlation: str

    def execute(self, database: Connection, operator: Operator) -> DroppedCorrelation:
        """Drop the column and record it, in one transaction. Raises SagaNotDeployed, DeployError, PermissionDenied."""
        noted = Noted(done=0, details={"saga": self.saga, "correlation": self.correlation})
        record = partial(operator.record, database, self.name, None, noted)
        saga_registry.drop_correlation(database, self.saga, self.correlation, record=record)
        return DroppedCorrelation(self.saga, f"Correlation_{self.correlation}")


def count_instances(database: Connection, saga: str) -> int:
    """Return how many instances a saga has, counted up to 500. Raises SagaNotDeployed."""
    return len(database.call("list_sagas", saga, count=COUNTED))


# ---------------------------------------------------------------------------------------------- read
def saga_types(database: Connection) -> made.SagaTypes:
    """Return the types of sagas. Raises FeatureMissing."""
    return made.SagaTypes([made.SagaType(row[0], *row[4:8]) for row in database.call("list_saga_types")])


def saga_instances(
    database: Connection, saga: str, after: UUID | None = None, count: int = INSTANCES
) -> made.SagaInstances:
    """Return a page of instances. Raises SagaNotDeployed."""
    kind = find_saga_type(database, saga)
    rows = database.call("list_sagas", kind.saga_name, count=count, after_id=after)
    found = [
        made.SagaInstance(**instance_document(row.id, row.concurrency, row.data, row.metadata, kind.correlation_name))
        for row in rows
    ]
    return made.SagaInstances(kind.saga_name, found, found[-1].id if len(found) == count else None)


def saga_instance(database: Connection, saga: str, instance: str) -> made.SagaInstance:
    """Return an instance by its correlation value or id. Raises SagaNotDeployed, SagaInstanceMissing.

    A login that may only list instances finds it among the first 5,000.
    """
    kind = find_saga_type(database, saga)
    try:
        found = find_instance(database, kind.saga_name, kind.correlation_name, instance)
    except PermissionDenied:
        found = _look_through(database, kind, instance)
    if found is None:
        raise SagaInstanceMissing(
            f"The saga {saga} has no instance {instance!r}. It is completed, or it was never started."
        )
    return made.SagaInstance(**found)


def _look_through(database: Connection, kind: Any, instance: str) -> dict[str, Any] | None:
    for key, value, version, _, data, metadata in islice(instances(database, kind.saga_name), LOOKED_THROUGH):
        if instance in (str(key), value):
            return instance_document(key, version, data, metadata, kind.correlation_name)
    return None


def saga_detail(database: Connection, saga: str, instance: str) -> made.SagaDetail:
    """Return an instance with its timeouts, from the delayed messages of its endpoint's queue.

    Raises SagaNotDeployed, SagaInstanceMissing.

    An endpoint's queue is known by its name, with which the saga's table begins. If no queue has it, up to 20 queues
    are read.
    """
    found = saga_instance(database, saga, instance)
    names = [row.queue_name for row in registered_queues(database) if row.kind != "external" and row.delayed]
    own = [name for name in names if saga.startswith(f"{name.replace('.', '_')}_")]
    timeouts: list[made.SagaTimeout] = []
    unseen: list[str] = []
    for name in own or names[:TIMEOUT_QUEUES]:
        try:
            waiting = DelayedMessages(name, database).browse(TIMEOUTS, max_body_bytes=0)
        except (PermissionDenied, FeatureMissing):
            unseen.append(name)
            continue
        timeouts += [made.document_of(made.SagaTimeout, each, queue=name) for each in _timeouts_of(waiting, found.id)]
    return made.SagaDetail(found, sorted(timeouts, key=lambda each: each.due), unseen)


def _timeouts_of(waiting: Iterable[DelayedMessage], instance: str) -> list[DelayedMessage]:
    return [
        each
        for each in waiting
        if (each.headers.get(SAGA_ID) or "").lower() == instance and each.headers.get(IS_SAGA_TIMEOUT)
    ]
