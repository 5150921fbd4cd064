"""The registry's entries as a deployment sees them: queues, types of sagas, tables of subscriptions, schedules. Pure.

`describe_queue` and the like make the entry of what an environment declares. An entry names the tables that its scripts
make, and has the values of the placeholders in its templates. A schedule has no scripts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, Self

from rowpost.database.contract import Contract, Procedure
from rowpost.database.dialects.protocol import Dialect
from rowpost.errors import InvalidQueueName
from rowpost.settings.environment import QueueSettings, SagaSettings, ScheduleSettings
from rowpost.wire.address import DEFAULT_SCHEMA, SUBSCRIPTION_TABLE, Address, parse_address, queue_key

__all__ = [
    "COLUMN_TYPES", "MOVING", "SCHEDULE", "DeclaredFeature", "Entry", "QueueEntry", "Rendered", "SagaEntry",
    "ScheduleEntry", "SubscriptionEntry", "default_table", "describe_queue", "describe_saga", "describe_schedule",
    "describe_subscriptions",
]  # fmt: skip

#: ends of the names of scripts that only a saga needs which moves from one correlation to another
MOVING = ("correlate_saga.sql", "correlate_sagas.sql", "create_transitional.sql")

#: under this name, and its own, it is on record that an environment declares a schedule
SCHEDULE = "schedule"

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


class DeclaredFeature(NamedTuple):
    """A feature that an environment declares.

    `queue_key` is the queue's that has it, or a schedule's name, and empty for a feature of the whole database.
    """

    name: str
    queue_key: str = ""

    @classmethod
    def parse(cls, text: str) -> DeclaredFeature:
        """Read a feature as the database records it."""
        name, _, key = text.partition(":")
        return cls(name, key)

    @property
    def text(self) -> str:
        """The feature as the database records it: `spark`, or `delayed:Sales` for a queue's."""
        return f"{self.name}:{self.queue_key}" if self.queue_key else self.name


@dataclass(frozen=True)
class _Entry:
    """A row of a registry.

    Attributes:
        key: what the names of its scripts and procedures end with.
        name: its canonical address, in the short form.
    """

    #: what lists of changes call it, the procedures that enter and list such rows, and the columns that are not called
    #: as the fields are
    noun: ClassVar[str]
    register: ClassVar[str]
    listed: ClassVar[str]
    columns: ClassVar[dict[str, str]]

    key: str
    name: str

    @property
    def title(self) -> str:
        """Its name in lists of changes."""
        return f"{self.noun} {self.name}"

    @property
    def record(self) -> dict[str, Any]:
        """The arguments of the procedure that enters it."""
        return {self.columns.get(each, each): getattr(self, each) for each in _columns(type(self))}

    @classmethod
    def from_row(cls, row: Any) -> Self:
        """Make the entry of a row of its registry."""
        return cls(**{each: getattr(row, cls.columns.get(each, each)) for each in _columns(cls)})


def _columns(kind: type[_Entry]) -> list[str]:
    return [each.name for each in fields(kind) if each.compare]


@dataclass(frozen=True)
class QueueEntry(_Entry):
    """A queue.

    `wake_up`: whether its table has a trigger that wakes supervisors at plain inserts, which the registry does not
    hold.
    """

    noun, register, listed = "queue", "register_queue", "list_queues"
    columns: ClassVar[dict[str, str]] = {"key": "queue_key", "name": "queue_name"}

    catalog_name: str | None
    schema_name: str
    table_name: str
    kind: str
    body_string: bool
    clustered: bool
    delayed: bool
    lease: bool = False
    wake_up: bool = field(default=False, compare=False)

    def placeholders(self, dialect: Dialect) -> dict[str, str]:
        """Return the values of the placeholders in its templates."""
        return {
            "queue_table": _quoted(dialect, self.catalog_name, self.schema_name, self.table_name),
            "delayed_table": _quoted(dialect, self.schema_name, self._side_table(dialect, "Delayed")),
            "leased_table": _quoted(dialect, self.schema_name, self._side_table(dialect, "Leased")),
            "queue_key": self.key,
            "queue_name": self.name,
            "schema_name": self.schema_name,
            "table_name": self.table_name,
        }

    @property
    def made_schema(self) -> str | None:
        """The schema that a deployment makes for its tables; None if the table is made elsewhere."""
        return self.schema_name if self.kind == "own" else None

    def _side_table(self, dialect: Dialect, suffix: str) -> str:
        """Return the name of a table beside the queue's, as the NServiceBus transport names that of delayed messages;
        with the queue's key if that is too long.
        """
        name = f"{self.table_name}.{suffix}"
        try:
            Address(name).qualified(dialect.name)
        except InvalidQueueName:
            return f"{self.key}.{suffix}"
        return name

    def objects(self, dialect: Dialect, names: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """Return the kind and the name of the object that each of its scripts below tables/ makes, by the script's
        name.
        """
        made = {
            "create": ("table", names["queue_table"], self.kind != "external"),
            "create_delayed": ("table", names["delayed_table"], self.delayed),
            "create_leased": ("table", names["leased_table"], self.lease),
            "create_trigger": ("trigger", f"rowpost.{dialect.quote(f'notify_inserts:{self.key}')}", self.wake_up),
        }
        return {script: (kind, name) for script, (kind, name, wanted) in made.items() if wanted}

    def procedures(self, contract: Contract, features: Collection[str]) -> tuple[Procedure, ...]:
        """Return the procedures of the contract that it has."""
        return contract.templates(self.kind, self.delayed, features, lease=self.lease)


@dataclass(frozen=True)
class SagaEntry(_Entry):
    """A type of saga. Its name is its table's, with the schema if that is not the engine's own default."""

    noun, register, listed = "saga", "register_saga", "list_saga_types"
    columns: ClassVar[dict[str, str]] = {"key": "saga_key", "name": "saga_name"}

    schema_name: str
    table_name: str
    correlation_name: str
    correlation_type: str
    transitional_name: str | None = None
    transitional_type: str | None = None

    @property
    def made_schema(self) -> str | None:
        """The same as for a queue."""
        return self.schema_name

    def placeholders(self, dialect: Dialect) -> dict[str, str]:
        """Return the values of the placeholders in its templates."""
        types = COLUMN_TYPES[dialect.name]
        names = {
            "saga_table": _quoted(dialect, self.schema_name, self.table_name),
            "saga_key": self.key,
            "correlation_column": f"Correlation_{self.correlation_name}",
            "correlation_type": types[self.correlation_type],
        }
        if self.transitional_name is not None and self.transitional_type is not None:
            names["transitional_name"] = self.transitional_name
            names["transitional_column"] = f"Correlation_{self.transitional_name}"
            names["transitional_type"] = types[self.transitional_type]
        return names

    def objects(self, dialect: Dialect, names: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """Return the same as for a queue."""
        scripts = ("create",) if self.transitional_name is None else ("create", "create_transitional")
        return dict.fromkeys(scripts, ("table", names["saga_table"]))

    def procedures(self, contract: Contract, features: Collection[str]) -> tuple[Procedure, ...]:
        """Return the procedures of the contract that it has."""
        return contract.saga_templates(self.transitional_name is not None)


@dataclass(frozen=True)
class SubscriptionEntry(_Entry):
    """A table of subscriptions. A table in another database is made there."""

    noun, register, listed = "subscriptions", "register_subscription_table", "list_subscription_tables"
    columns: ClassVar[dict[str, str]] = {"key": "table_key", "name": "display_name"}

    catalog_name: str | None
    schema_name: str
    table_name: str

    @property
    def made_schema(self) -> str | None:
        """The same as for a queue."""
        return self.schema_name if self.catalog_name is None else None

    def placeholders(self, dialect: Dialect) -> dict[str, str]:
        """Return the values of the placeholders in its templates."""
        table = _quoted(dialect, self.catalog_name, self.schema_name, self.table_name)
        return {"subscription_table": table, "subscription_key": self.key}

    def objects(self, dialect: Dialect, names: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """Return the same as for a queue."""
        return {} if self.catalog_name is not None else {"create": ("table", names["subscription_table"])}

    def procedures(self, contract: Contract, features: Collection[str]) -> tuple[Procedure, ...]:
        """Return no procedure: its helpers are not the contract's."""
        return ()


@dataclass(frozen=True)
class ScheduleEntry(_Entry):
    """A schedule. Its key is its name."""

    noun, register, listed = "schedule", "register_schedule", "list_schedules"
    columns: ClassVar[dict[str, str]] = {"key": "schedule_name", "name": "schedule_name"}

    queue_name: str
    destination: str
    message_type: str
    cron: str | None
    interval_ms: int | None
    zone: str
    missed: str

    @property
    def declared(self) -> DeclaredFeature:
        """How it is on record that an environment declares it."""
        return DeclaredFeature(SCHEDULE, self.key)


#: an entry whose templates are rendered
Rendered = QueueEntry | SagaEntry | SubscriptionEntry
Entry = Rendered | ScheduleEntry


def describe_queue(queue: QueueSettings, engine: str, *, wake_up: bool = False) -> QueueEntry:
    """Return the registry's entry of a declared queue.

    `wake_up` asks for its trigger on inserts. Raises InvalidQueueName.
    """
    name, full = _address(queue.name, engine)
    if full.catalog is not None and queue.kind != "external":
        raise InvalidQueueName(
            f"The queue {queue.name!r} lies in another database: it can only be external here. Deploy rowpost into "
            "that database to receive from it."
        )
    own = queue.kind != "external"
    return QueueEntry(
        *name,
        full.catalog,
        str(full.schema),
        full.table,
        queue.kind,
        body_string=queue.body_string,
        clustered=queue.clustered,
        delayed=queue.delayed and own,
        lease=queue.lease and own,
        wake_up=wake_up and own,
    )


def describe_saga(saga: SagaSettings, engine: str) -> SagaEntry:
    """Return the registry's entry of a declared saga. Raises InvalidQueueName if there can be no such table."""
    name, full = _address(saga.name, engine)
    return SagaEntry(
        *name, str(full.schema), full.table, saga.correlation, saga.type, saga.transitional, saga.transitional_type
    )


def describe_schedule(schedule: ScheduleSettings) -> ScheduleEntry:
    """Return the registry's entry of a declared schedule."""
    due = schedule.due
    return ScheduleEntry(
        schedule.name,
        schedule.name,
        schedule.queue,
        schedule.to,
        schedule.type,
        due.cron,
        due.interval_ms,
        due.zone,
        schedule.missed,
    )


def describe_subscriptions(name: str, engine: str) -> SubscriptionEntry:
    """Return the registry's entry of a table of subscriptions.

    Raises InvalidQueueName if there can be no such table.
    """
    short, full = _address(name, engine)
    return SubscriptionEntry(*short, full.catalog, str(full.schema), full.table)


def default_table(engine: str) -> SubscriptionEntry:
    """Return the table of subscriptions that every database has. It is not registered, and always read."""
    return SubscriptionEntry(SUBSCRIPTION_TABLE, SUBSCRIPTION_TABLE, None, DEFAULT_SCHEMA[engine], SUBSCRIPTION_TABLE)


def _address(name: str, engine: str) -> tuple[tuple[str, str], Address]:
    """Return the key and the name of an entry, and its full address."""
    address = parse_address(name)
    full = address.qualified(engine)
    return (queue_key(address, engine), full.short(engine).format()), full


def _quoted(dialect: Dialect, *parts: str | None) -> str:
    return ".".join(dialect.quote(part) for part in parts if part is not None)
