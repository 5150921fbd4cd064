"""Types of sagas as a deployment sees them: which table, found by which column, rendered into which scripts. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from rowpost.database.dialects.protocol import Dialect
from rowpost.settings.environment import SagaSettings
from rowpost.wire.address import parse_address, queue_key

__all__ = ["COLUMN_TYPES", "MOVING", "SagaEntry", "describe_saga", "saga_names"]

#: ends of the names of scripts that only a saga needs which moves from one correlation to another
MOVING = ("correlate_saga.sql", "correlate_sagas.sql", "create_transitional.sql")

#: a correlation property's column, by engine and kind; integers have 64 bits on both engines
COLUMN_TYPES = {
    "postgresql": {
        "string": "character varying(200)",
        "integer": "bigint",
        "uuid": "uuid",
        "timestamp": "timestamp with time zone",
    },
    "sqlserver": {
        "string": "nvarchar(200)",
        "integer": "bigint",
        "uuid": "uniqueidentifier",
        "timestamp": "datetimeoffset",
    },
}


@dataclass(frozen=True)
class SagaEntry:
    """A row of the registry of sagas, columns as register_saga takes them."""

    saga_key: str
    saga_name: str
    schema_name: str
    table_name: str
    correlation_name: str
    correlation_type: str
    transitional_name: str | None = None
    transitional_type: str | None = None

    @property
    def name(self) -> str:
        """Its table, with the schema where that is not the engine's own default."""
        return self.saga_name

    @property
    def title(self) -> str:
        """As lists of changes name it."""
        return f"saga {self.saga_name}"


def describe_saga(saga: SagaSettings, engine: str) -> SagaEntry:
    """Return the registry's entry of a declared saga. Raises InvalidQueueName: such a table cannot be."""
    address = parse_address(saga.name)
    full = address.qualified(engine)
    return SagaEntry(
        saga_key=queue_key(address, engine),
        saga_name=full.short(engine).format(),
        schema_name=str(full.schema),
        table_name=full.table,
        correlation_name=saga.correlation,
        correlation_type=saga.type,
        transitional_name=saga.transitional,
        transitional_type=saga.transitional_type,
    )


def saga_names(saga: SagaEntry, dialect: Dialect) -> dict[str, str]:
    """Return the values of the placeholders in a saga's templates."""
    types = COLUMN_TYPES[dialect.name]
    names = {
        "saga_table": f"{dialect.quote(saga.schema_name)}.{dialect.quote(saga.table_name)}",
        "saga_key": saga.saga_key,
        "correlation_column": f"Correlation_{saga.correlation_name}",
        "correlation_type": types[saga.correlation_type],
    }
    if saga.transitional_name is not None and saga.transitional_type is not None:
        names["transitional_name"] = saga.transitional_name
        names["transitional_column"] = f"Correlation_{saga.transitional_name}"
        names["transitional_type"] = types[saga.transitional_type]
    return names
