"""Operations on the tables of sagas: drop a saga, or a correlation property that it no longer uses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rowpost.database.connection import Connection
from rowpost.deploy import sagas as saga_registry
from rowpost.operations.log import Noted, Operator
from rowpost.operations.operation import Result

__all__ = ["DropCorrelation", "DropSaga", "DroppedCorrelation", "DroppedSaga", "count_instances"]

#: instances that are counted before a saga is dropped
COUNTED = 500


class DroppedSaga(Result, frozen=True):
    """A saga that was dropped. `dropped`: with its table."""

    saga: str
    dropped: bool

    @property
    def sentence(self) -> str:
        return f"Dropped the saga {self.saga}{'' if self.dropped else '; its table stays'}."


class DroppedCorrelation(Result, frozen=True):
    """A column of a saga's table that was dropped."""

    saga: str
    dropped: str

    @property
    def sentence(self) -> str:
        return f"Dropped the column {self.dropped} of {self.saga}."


@dataclass(frozen=True, kw_only=True)
class DropSaga:
    """Drop a saga that no endpoint declares any more, with all its instances, or without its table (`keep_table`)."""

    name = "drop-saga"
    saga: str
    keep_table: bool = False

    def execute(self, database: Connection, operator: Operator) -> DroppedSaga:
        """Drop the saga and record it, in one transaction. Raises SagaNotDeployed, DeployError, PermissionDenied."""
        saga = saga_registry.find_saga(database, self.saga).saga_name
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
