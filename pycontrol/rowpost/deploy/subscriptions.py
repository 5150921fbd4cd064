"""Tables of subscriptions that go out of use: events no longer go to the subscribers in them, and their rows stay."""

from __future__ import annotations

from rowpost.database.connection import Connection
from rowpost.deploy.deployment import changing
from rowpost.deploy.entries import SubscriptionEntry
from rowpost.deploy.state import check_not_newer, read_state
from rowpost.errors import DeployError

__all__ = ["forget_table"]


def forget_table(database: Connection, name: str) -> None:
    """Take a table of subscriptions off record.

    A deployment of its own: the same lock, the same journal, one transaction.

    Args:
        name: its address in the short form.

    Raises:
        DeployError: no such table is on record.
    """
    with changing(database, f"subscriptions {name}") as (running, scripts):
        state = read_state(database)
        check_not_newer(scripts.schema_version, state)
        tables = {entry.name: entry for entry in state.registry if isinstance(entry, SubscriptionEntry)}
        if name not in tables:
            known = ", ".join(sorted(tables)) or "none but the default one, which stays"
            raise DeployError(f"No table of subscriptions {name!r} is on record here. Known: {known}.")
        key = tables[name].key
        database.call("unregister_subscription_table", table_key=key)
        folders = ("procedures/pubsub/", "tables/subscription/")
        of_table = [each for each in state.journal if each.script_name.startswith(folders) and each.key == key]
        calls = running.drop(each for each in of_table if each.object_kind == "procedure")
        running.write(calls + [each.forget_call for each in of_table if each.object_kind == "table"])
