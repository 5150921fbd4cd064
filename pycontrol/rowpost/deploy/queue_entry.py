"""Queues as a deployment sees them: which tables and procedures, and the values rendered into scripts. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from rowpost.database.dialects.protocol import Dialect
from rowpost.errors import InvalidQueueName
from rowpost.settings.environment import QueueSettings
from rowpost.wire.address import Address, parse_address, queue_key

__all__ = ["QueueEntry", "delayed_feature", "describe_queue", "queue_names", "wake_up_feature"]


@dataclass(frozen=True)
class QueueEntry:
    """A row of the registry, columns as register_queue takes them."""

    queue_key: str
    queue_name: str
    catalog_name: str | None
    schema_name: str
    table_name: str
    kind: str
    body_string: bool
    clustered: bool
    delayed: bool

    @property
    def name(self) -> str:
        """Its canonical address, short."""
        return self.queue_name

    @property
    def title(self) -> str:
        """As lists of changes name it."""
        return f"queue {self.queue_name}"


def delayed_feature(queue: QueueEntry) -> str:
    """Return the name under which the database records that an environment declares a queue's delayed table."""
    return f"delayed:{queue.queue_key}"


def wake_up_feature(queue: QueueEntry) -> str:
    """Return the name under which the database records that an environment declares a queue's trigger on inserts."""
    return f"wake_up:{queue.queue_key}"


def describe_queue(queue: QueueSettings, engine: str) -> QueueEntry:
    """Return the registry's entry of a declared queue. Raises InvalidQueueName."""
    address = parse_address(queue.name)
    full = address.qualified(engine)
    if full.catalog is not None and queue.kind != "external":
        raise InvalidQueueName(
            f"The queue {queue.name!r} lies in another database: it can only be external here. Deploy rowpost into that database to receive from it."
        )
    return QueueEntry(
        queue_key=queue_key(address, engine),
        queue_name=full.short(engine).format(),
        catalog_name=full.catalog,
        schema_name=str(full.schema),
        table_name=full.table,
        kind=queue.kind,
        body_string=queue.body_string,
        clustered=queue.clustered,
        delayed=queue.delayed and queue.kind != "external",
    )


def queue_names(queue: QueueEntry, dialect: Dialect) -> dict[str, str]:
    """Return the values of the placeholders in a queue's templates."""
    return {
        "queue_table": _table_name(queue, dialect),
        "delayed_table": _delayed_table_name(queue, dialect),
        "queue_key": queue.queue_key,
        "queue_name": queue.queue_name,
        "schema_name": queue.schema_name,
        "table_name": queue.table_name,
    }


def _table_name(queue: QueueEntry, dialect: Dialect) -> str:
    parts = (queue.catalog_name, queue.schema_name, queue.table_name)
    return ".".join(dialect.quote(part) for part in parts if part is not None)


def _delayed_table_name(queue: QueueEntry, dialect: Dialect) -> str:
    """Beside the queue's table, named as the NServiceBus transport names it; by the queue's key where that is too long."""
    name = f"{queue.table_name}.Delayed"
    try:
        Address(name).qualified(dialect.name)
    except InvalidQueueName:
        name = f"{queue.queue_key}.Delayed"
    return ".".join(dialect.quote(part) for part in (queue.schema_name, name))
