"""From endpoints to settings that a supervisor can work: `rowpost run shop.app:sales shop.app:billing`.

The environment says where the database is and what belongs to it; the endpoint object says what its author decided:
limit, strategy, transaction mode, recoverability, error queue, audit queue, subscriptions. Where an endpoint leaves its
limit or its strategy open, the environment's worker of the same queue decides, else the defaults do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import astuple, replace

from rowpost.database.connection import Connection, connect
from rowpost.database.sql_folder import schema_version
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.resolve import resolve_handler
from rowpost.errors import HandlerNotFound, InvalidQueueName, SagaNotDeployed, SchemaMissing, SettingsError
from rowpost.settings.compat import compat_of
from rowpost.settings.environment import QueueSettings, Settings, WorkerSettings, with_partitions
from rowpost.wire.address import DEFAULT_SCHEMA, Address, parse_address

__all__ = [
    "check_outboxes",
    "check_sagas",
    "needed_queues",
    "open_embedded",
    "prepare",
    "registered_sagas",
    "subscribe",
    "subscribe_all",
    "with_endpoints",
    "with_sagas",
]  # fmt: skip


def with_endpoints(settings: Settings, names: Iterable[str]) -> Settings:
    """The settings with workers for these endpoints, named `module:object`, and for no other queue.

    Raises:
        HandlerNotFound: a name leads nowhere, or not to an Endpoint.
        SettingsError: an endpoint cannot be run: send-only, without handlers, or named twice.
    """
    queues = {queue.name: replace(queue, worker=None) for queue in settings.queues}
    before = {queue.name: queue for queue in settings.queues}
    taken: dict[str, str] = {}
    for name in names:
        endpoint = _resolve(name)
        queue = _queue_name(settings, endpoint.name)
        if queue in taken:
            raise SettingsError(f"{name} and {taken[queue]} are both endpoints of the queue {queue!r}: run one.")
        taken[queue] = name
        declared = before.get(queue, QueueSettings(queue))
        worked = with_partitions(replace(declared, worker=_worker(settings, name, endpoint, _worker_of(declared, before))))
        queues.update((each.name, each) for each in worked)
    return with_sagas(replace(settings, queues=tuple(queues.values())))


def with_sagas(settings: Settings, unknown: Callable[[HandlerNotFound], None] = lambda error: None) -> Settings:
    """The settings with the tables that the sagas of their endpoints need; `unknown` is told what cannot be imported here.

    Raises:
        SettingsError: two sagas share a table, or the environment's file declares it with another correlation.
    """
    sagas = {saga.name: saga for saga in settings.sagas}
    for queue in settings.queues:
        if queue.worker is None:
            continue
        try:
            handler = resolve_handler(queue.worker.handler)
        except HandlerNotFound as error:
            unknown(error)
            continue
        for saga in handler.sagas if isinstance(handler, Endpoint) else ():
            needed = replace(saga, name=_queue_name(settings, saga.name))
            if sagas.setdefault(needed.name, needed) != needed:
                raise SettingsError(
                    f"The saga table {needed.name!r} of {queue.worker.handler} is declared twice, and not alike: as {needed} and "
                    f"as {sagas[needed.name]}. Give one of the sagas another table, or correct the environment's file."
                )
    return replace(settings, sagas=tuple(sagas.values()))


def check_sagas(settings: Settings, database: Connection) -> None:
    """Raises SagaNotDeployed where a saga's table is not registered in this database."""
    registered = {row.saga_name for row in database.call("list_saga_types")} if settings.sagas else set()
    for saga in settings.sagas:
        if saga.name not in registered:
            raise SagaNotDeployed(
                f"The saga table {saga.name!r} is not deployed in {settings.target}. Run rowpost apply, where the "
                "environment names its endpoint as a worker or declares the table below sagas."
            )


def _resolve(name: str) -> Endpoint:
    endpoint = resolve_handler(name)
    if not isinstance(endpoint, Endpoint):
        raise HandlerNotFound(
            f"{name} is a {type(endpoint).__name__}, not an Endpoint. A plain function is run by an environment's file: "
            "worker: {handler: …} below its queue"
        )
    if endpoint.send_only:
        raise SettingsError(f"{name}: the endpoint {endpoint.name!r} is send-only: it has no queue to work off.")
    return endpoint


def _worker(settings: Settings, name: str, endpoint: Endpoint, declared: WorkerSettings | None) -> WorkerSettings:
    base = declared or WorkerSettings(name, strategy=compat_of(settings.compat).strategy)
    return replace(
        base,
        handler=name,
        limit=endpoint.limit or base.limit,
        strategy=endpoint.strategy or base.strategy,
    )


def _worker_of(declared: QueueSettings, queues: Mapping[str, QueueSettings]) -> WorkerSettings | None:
    """The worker that the environment declares: a partitioned queue's stands at its partitions."""
    return queues[declared.partitions[0]].worker if declared.partitions else declared.worker


def _queue_name(settings: Settings, name: str) -> str:
    """The queue of an endpoint, in the environment's default schema."""
    try:
        address = parse_address(name)
        full = Address(address.table, address.schema or settings.default_schema, address.catalog)
        return full.qualified(settings.engine).short(settings.engine).format()
    except InvalidQueueName as error:
        raise SettingsError(f"The endpoint {name!r} cannot name a queue: {error}") from error


def needed_queues(settings: Settings) -> tuple[str, ...]:
    """The queues that must be there before the workers of these settings start: their own, error and audit queues."""
    names: dict[str, None] = {}
    for queue in settings.queues:
        if queue.worker is None:
            continue
        names[queue.name] = None
        try:
            handler = resolve_handler(queue.worker.handler)
        except HandlerNotFound:  # the worker says so, for that queue alone
            handler = None
        if isinstance(handler, Endpoint):
            copies = (handler.error_queue, handler.audit_queue)
            names.update(dict.fromkeys(_queue_name(settings, copy) for copy in copies if copy is not None))
        else:
            names[settings.supervisor.error_queue] = None
    return tuple(names)


def check_outboxes(settings: Settings) -> None:
    """Makes sure that somebody says where the business databases of all endpoints are that these settings run.

    Raises:
        SettingsError: nobody does.
    """
    known = {each.name: each.url for each in settings.outboxes}
    for queue in settings.queues:
        with suppress(HandlerNotFound):  # the worker says so, for that queue alone
            handler = None if queue.worker is None else resolve_handler(queue.worker.handler)
            if isinstance(handler, Endpoint) and handler.outbox is not None:
                handler.outbox.find_url(known)


def subscribe(endpoint: Endpoint, database: Connection) -> None:
    """Subscribes an endpoint to what its handlers declare, in one round trip. Its instances share the subscription."""
    address = endpoint.reply_address(database)
    calls = [
        ("subscribe", None, {"endpoint": endpoint.name, "topic": topic, "queue_address": address})
        for topic in endpoint.subscriptions
    ]
    if calls:
        database.call_all(calls, begin=True, commit=True)


def subscribe_all(settings: Settings, database: Connection) -> None:
    """Subscribes every endpoint that these settings run, before any of them works: no event of theirs gets lost."""
    for queue in settings.queues:
        if queue.worker is None:
            continue
        with suppress(HandlerNotFound):  # the worker says so, for that queue alone
            handler = resolve_handler(queue.worker.handler)
            if isinstance(handler, Endpoint):
                subscribe(handler, database)


def open_embedded(endpoint: Endpoint) -> Connection:
    """A connection to the embedded server, where the endpoint's queues are deployed: for tests and trials."""
    database = connect(Settings(), application_name=f"rowpost {endpoint.name}")
    prepare(endpoint, database)
    return database


def prepare(endpoint: Endpoint, database: Connection) -> None:
    """Deploys the endpoint's queues and the tables of its sagas, where they are missing, and subscribes it."""
    settings = Settings(engine=database.engine, default_schema=DEFAULT_SCHEMA[database.engine])
    queues = [] if endpoint.send_only else [QueueSettings(endpoint.name)]
    queues += [QueueSettings(name, delayed=False) for name in (endpoint.error_queue, endpoint.audit_queue) if name]
    wanted = {_queue_name(settings, queue.name): queue for queue in queues}
    missing = set(wanted) - _deployed_queues(database)
    if missing or not _is_current(database) or not _has_sagas(endpoint, database):
        apply(database, plan(replace(settings, queues=tuple(wanted.values()), sagas=endpoint.sagas)))
    if not endpoint.send_only:
        subscribe(endpoint, database)


def _deployed_queues(database: Connection) -> set[str]:
    try:
        return {row.queue_name for row in database.call("list_queues")}
    except SchemaMissing:
        return set()


def _has_sagas(endpoint: Endpoint, database: Connection) -> bool:
    if not endpoint.sagas:
        return True
    return {astuple(saga) for saga in endpoint.sagas} <= registered_sagas(database)


def registered_sagas(database: Connection) -> set[tuple]:
    """The types of sagas that are deployed, each as astuple of its SagaSettings. Raises SchemaMissing."""
    return {(row[0], *row[4:]) for row in database.call("list_saga_types")}


def _is_current(database: Connection) -> bool:
    rows = database.call("get_version")
    return bool(rows) and rows[0].schema_version == schema_version(database.engine)
