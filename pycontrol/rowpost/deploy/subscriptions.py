"""Tables of subscriptions that go out of use: events no longer go to the subscribers in them, and their rows stay."""

from __future__ import annotations

from rowpost.database.connection import Connection
from rowpost.deploy.apply import fitted, read_state, refuse_newer
from rowpost.deploy.deployment import deployment
from rowpost.deploy.plan import build_plan
from rowpost.deploy.scripts import load_scripts
from rowpost.deploy.subscription_entry import SubscriptionEntry
from rowpost.errors import DeployError

__all__ = ["forget_table"]


def forget_table(database: Connection, name: str) -> None:
    """Take a table of subscriptions off record. A deployment of its own: the same lock, the same journal, one transaction.

    Args:
        name: its address in the short form.

    Raises:
        DeployError: no such table is on record.
    """
    plan = fitted(database, build_plan(f"subscriptions {name}", load_scripts(database.engine), [], whole=False))
    with deployment(database, plan) as running:
        state = read_state(database)
        refuse_newer(plan, state)
        tables = {entry.name: entry for entry in state.registry if isinstance(entry, SubscriptionEntry)}
        if name not in tables:
            known = ", ".join(sorted(tables)) or "none but the default one, which stays"
            raise DeployError(f"No table of subscriptions {name!r} is on record here. Known: {known}.")
        key = tables[name].table_key
        database.call("unregister_subscription_table", table_key=key)
        folders = ("procedures/pubsub/", "tables/subscription/")
        of_table = [each for each in state.journal if each.script_name.startswith(folders) and each.script_name.partition(".sql:")[2] == key]
        running.drop(each for each in of_table if each.object_kind == "procedure")
        for each in of_table:
            if each.object_kind == "table":
                database.call("forget_script", script_name=each.script_name)
