"""Tables of subscriptions as a deployment sees them: which table, and the values rendered into scripts. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from rowpost.database.dialects.protocol import Dialect
from rowpost.wire.address import DEFAULT_SCHEMA, SUBSCRIPTION_TABLE, parse_address, queue_key

__all__ = ["SubscriptionEntry", "default_table", "describe_table", "table_names"]


@dataclass(frozen=True)
class SubscriptionEntry:
    """A row of the registry of tables of subscriptions, columns as register_subscription_table takes them."""

    table_key: str
    display_name: str
    catalog_name: str | None
    schema_name: str
    table_name: str

    @property
    def name(self) -> str:
        """Its address in the short form."""
        return self.display_name

    @property
    def title(self) -> str:
        """As lists of changes name it."""
        return f"subscriptions {self.display_name}"


def describe_table(name: str, engine: str) -> SubscriptionEntry:
    """Return the registry's entry of a table of subscriptions. Raises InvalidQueueName: such a table cannot be."""
    address = parse_address(name)
    full = address.qualified(engine)
    return SubscriptionEntry(
        table_key=queue_key(address, engine),
        display_name=full.short(engine).format(),
        catalog_name=full.catalog,
        schema_name=str(full.schema),
        table_name=full.table,
    )


def default_table(engine: str) -> SubscriptionEntry:
    """Return the table of subscriptions that every database has. It is not registered, and always read."""
    return SubscriptionEntry(SUBSCRIPTION_TABLE, SUBSCRIPTION_TABLE, None, DEFAULT_SCHEMA[engine], SUBSCRIPTION_TABLE)


def table_names(entry: SubscriptionEntry, dialect: Dialect) -> dict[str, str]:
    """Return the values of the placeholders in the templates of a table of subscriptions."""
    parts = (entry.catalog_name, entry.schema_name, entry.table_name)
    return {
        "subscription_table": ".".join(dialect.quote(part) for part in parts if part is not None),
        "subscription_key": entry.table_key,
    }
