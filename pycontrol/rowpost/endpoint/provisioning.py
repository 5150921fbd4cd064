"""Create what endpoints need in a database: queues, tables of sagas, subscriptions, and temporary databases for tests.

`prepare` deploys one endpoint, `subscribe` subscribes it, `open_temporary` opens a database of the embedded server that
only this process uses. Supervisors use `endpoint.hosting` instead, which works on whole environments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, replace
from typing import Any

from rowpost.database import embedded
from rowpost.database.connection import Connection, connect_url
from rowpost.database.sql_folder import schema_version
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.endpoint.declaration import EndpointDeclaration
from rowpost.errors import FeatureMissing, InvalidQueueName, SchemaMissing, SettingsError
from rowpost.settings.environment import QueueSettings, Settings
from rowpost.wire.address import DEFAULT_SCHEMA, SUBSCRIPTION_TABLE, Address, parse_address, queue_key
from rowpost.wire.outgoing import Call

__all__ = [
    "deployed_queues", "features_of", "in_table", "open_temporary", "prepare", "queue_name", "queues_with_leases",
    "registered_sagas", "subscribe", "subscribe_queues",
]  # fmt: skip


def open_temporary(application_name: str) -> Connection:
    """Open a connection to this process's own database on the embedded server: no environment's messages are in it."""
    settings = Settings()
    return connect_url(settings.engine, embedded.temporary(settings.data_folder), application_name)


def prepare(endpoint: EndpointDeclaration, database: Connection) -> None:
    """Deploy the endpoint's queues and the tables of its sagas if they are missing, and subscribe it."""
    default_schema = endpoint.default_schema or DEFAULT_SCHEMA[database.engine]
    # under a name of its own, so that no environment of this database takes what others declare for its own
    settings = Settings(
        f"endpoint {endpoint.name}", database.engine, default_schema=default_schema, features=features_of(endpoint)
    )
    own = () if endpoint.send_only else (endpoint.queue, endpoint.instance_queue)
    queues = [QueueSettings(name, lease=endpoint.needs_leases) for name in own if name is not None]
    queues += [QueueSettings(name, delayed=False) for name in (endpoint.error_queue, endpoint.audit_queue) if name]
    wanted = {queue_name(settings, queue.name): queue for queue in queues}
    missing = set(wanted) - deployed_queues(database)
    if endpoint.needs_leases:
        missing |= {queue_name(settings, endpoint.queue)} - queues_with_leases(database)
    if missing or not _is_current(database) or not _has_sagas(endpoint, database):
        apply(database, plan(replace(settings, queues=tuple(wanted.values()), sagas=endpoint.sagas)))
    if not endpoint.send_only:
        subscribe(endpoint, database)


def features_of(endpoint: EndpointDeclaration) -> tuple[str, ...]:
    """Return the features that the endpoint's own declaration needs, apart from its sagas'."""
    needs = {
        "outbox": endpoint.outbox is not None,
        "schedules": bool(endpoint.schedules),
        "transactions": endpoint.transaction_mode == "transaction_scope",
    }
    return tuple(feature for feature, needed in needs.items() if needed)


def subscribe(endpoint: EndpointDeclaration, database: Connection, table: str = SUBSCRIPTION_TABLE) -> None:
    """Subscribe an endpoint to what its handlers declare, in one round trip. All its processes share the subscription.

    `table` is the environment's table of subscriptions, `Settings.subscription_table`.

    Raises SettingsError: the endpoint only sends.
    """
    if endpoint.send_only:
        raise SettingsError(
            f"The endpoint {endpoint.name!r} cannot subscribe: it is send-only and has no queue that events could be "
            "copied to. Remove send_only=True, or let another endpoint subscribe."
        )
    subscribe_queues(database, table, [(endpoint.name, endpoint.address, endpoint.subscriptions)])


def subscribe_queues(
    database: Connection, table: str, subscribers: Iterable[tuple[str, Address, Iterable[str]]]
) -> None:
    """Subscribe endpoints in one round trip: each with its name, the address that gets the events, and its topics."""
    where = in_table(table, database.engine)
    calls = [
        Call("subscribe", None, {"endpoint": name, "topic": each, "queue_address": database.canonical(queue), **where})
        for name, queue, topics in subscribers
        for each in topics
    ]
    if calls:
        database.call_all(calls, begin=True, commit=True)


def in_table(table: str, engine: str) -> dict[str, str]:
    """Return the argument of the procedure `subscribe` for a table of subscriptions; none for the default table."""
    return {} if table == SUBSCRIPTION_TABLE else {"table_key": queue_key(parse_address(table), engine)}


def queue_name(settings: Settings, name: str) -> str:
    """Return the registered name of an endpoint's queue, in the environment's default schema.

    Raises:
        SettingsError: the endpoint's name is not a queue's name.
    """
    try:
        return settings.naming.canonical(name)
    except InvalidQueueName as error:
        raise SettingsError(
            f"The endpoint {name!r} cannot have a queue of its name: {error} Give the endpoint another name."
        ) from error


def registered_sagas(database: Connection) -> set[tuple[Any, ...]]:
    """Return the types of sagas that are deployed, each as `astuple` of its SagaSettings. Raises SchemaMissing."""
    try:
        return {(row[0], *row[4:], "") for row in database.call("list_saga_types")}
    except FeatureMissing:
        return set()


def deployed_queues(database: Connection) -> set[str]:
    """Return the names of the queues that are registered; none if no schema is deployed."""
    try:
        return {row[0] for row in database.call("list_queues")}
    except SchemaMissing:
        return set()


def queues_with_leases(database: Connection) -> set[str]:
    """Return the names of the queues that have a table of leases; none if no schema is deployed."""
    try:
        return {row.queue_name for row in database.call("list_queues") if row.lease}
    except SchemaMissing:
        return set()


def _has_sagas(endpoint: EndpointDeclaration, database: Connection) -> bool:
    wanted = {astuple(saga) for saga in endpoint.sagas if not saga.outbox}
    return not wanted or wanted <= registered_sagas(database)


def _is_current(database: Connection) -> bool:
    """Return whether the database has this release's schema, or a newer one that serves it. Raises SchemaTooNew."""
    rows, ours = database.call("get_version"), schema_version(database.engine)
    if rows and rows[0].schema_version > ours:
        database.check_schema()
    return bool(rows) and rows[0].schema_version >= ours
