"""Derive what a supervisor runs from endpoints: `rowpost run shop.app:sales shop.app:billing`.

The environment says where the database is and what belongs to it. The endpoint says what its author decided: limit,
strategy, transaction mode, recoverability, error queue, audit queue and subscriptions. If an endpoint leaves its limit
or strategy open, the environment's worker of the same queue decides, else the defaults do.

Handlers are named `module:object` in settings. A handler that cannot be imported is reported by its own worker, so most
functions here skip it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from rowpost.database.connection import Connection
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.provisioning import features_of, queue_name, queues_with_leases, registered_sagas
from rowpost.endpoint.resolve import resolve_endpoint, resolve_handler
from rowpost.errors import HandlerNotFound, SagaNotDeployed, SettingsError
from rowpost.recoverability.policy import Host
from rowpost.settings.compat import compat_of
from rowpost.settings.environment import QueueSettings, Settings, WorkerSettings, with_partitions

__all__ = [
    "check_leases",
    "check_outboxes",
    "check_sagas",
    "endpoints_of",
    "host_of",
    "needed_queues",
    "subscribe_all",
    "undeclared_queues",
    "with_endpoints",
    "with_instances",
    "with_needs",
    "with_sagas",
]  # fmt: skip


def host_of(settings: Settings, queue: str) -> Host:
    """Return who handles the messages of a queue, for copies that are made where its endpoint does not run.

    The endpoint is imported when it has to change the first headers.
    """
    declared = settings.queue(queue)
    worker = None if declared is None else declared.worker

    def change(headers: dict[str, str | None], error: BaseException) -> Mapping[str, str | None]:
        hook = worker and resolve_handler(worker.handler, queue).options.error_headers
        return hook(headers, error) if hook else headers

    return replace(Host.of_queue(queue, settings), error_headers=change)


def with_endpoints(settings: Settings, names: Iterable[str]) -> Settings:
    """Return the settings with workers for these endpoints, named `module:object`, and for no other queue.

    Raises:
        HandlerNotFound: a name does not lead to an Endpoint.
        SettingsError: an endpoint cannot be run: it is send-only, two names are endpoints of the same queue, or its
            routes contradict those of the environment.
    """
    queues = {queue.name: replace(queue, worker=None) for queue in settings.queues}
    before = {queue.name: queue for queue in settings.queues}
    taken: dict[str, str] = {}
    for name in names:
        endpoint = resolve_endpoint(name)
        if endpoint.send_only:
            raise SettingsError(
                f"{name} cannot be run: the endpoint {endpoint.name!r} is send-only and has no queue. Run another "
                "endpoint."
            )
        endpoint.configure(settings)
        queue = queue_name(settings, endpoint.queue)
        if queue in taken:
            raise SettingsError(
                f"{name} and {taken[queue]} cannot both run: they are endpoints of the same queue {queue!r}. Run one "
                "of them."
            )
        taken[queue] = name
        declared = before.get(queue, QueueSettings(queue))
        # the worker of a partitioned queue stands at its partitions
        worker = before[declared.partitions[0]].worker if declared.partitions else declared.worker
        worked = with_partitions(replace(declared, worker=_worker(settings, name, endpoint, worker)))
        queues.update((each.name, each) for each in worked)
    return with_sagas(with_instances(replace(settings, queues=tuple(queues.values()))))


def with_instances(settings: Settings, *, imported: bool = False) -> Settings:
    """Return the settings with the names of the endpoints that they name as workers, with what these decide about their
    workers, and with workers for the queues of their instances.

    Workers of an instance's queue have the settings of the endpoint's workers, unless the environment declares them.

    With `imported`, no module is imported, and endpoints of such modules are skipped.

    Raises:
        SettingsError: the queue of an instance has a worker with another handler.
    """
    queues, named = {queue.name: queue for queue in settings.queues}, {}
    known = [each for each in settings.queues if each.worker and each.worker.handler.partition(":")[0] in sys.modules]
    for queue, endpoint in endpoints_of(replace(settings, queues=tuple(known)) if imported else settings):
        named[queue.name] = endpoint.name
        if queue.worker is None:
            continue
        worker = _worker(settings, queue.worker.handler, endpoint, queue.worker)
        queues[queue.name] = replace(queue, worker=worker)
        if endpoint.instance is None:
            continue
        own = queue_name(settings, str(endpoint.instance_queue))
        declared = queues.get(own, QueueSettings(own))
        if declared.worker is not None and declared.worker.handler != worker.handler:
            raise SettingsError(
                f"The queue {own!r} belongs to the instance {endpoint.instance!r} of {worker.handler}, and also "
                f"has the handler {declared.worker.handler}. Rename the instance or the other endpoint."
            )
        queues[own] = replace(declared, worker=declared.worker or worker)
        named[own] = endpoint.name
    return replace(settings, queues=tuple(queues.values()), named=tuple(named.items()))


def with_sagas(settings: Settings, unknown: Callable[[HandlerNotFound], None] = lambda error: None) -> Settings:
    """Return the settings with the tables that the sagas of their endpoints need.

    Args:
        settings: the environment.
        unknown: is called for each handler that cannot be imported here.

    Raises:
        SettingsError: two sagas share a table, or the environment's file declares it with another correlation.
    """
    sagas = {(saga.outbox, saga.name): saga for saga in settings.sagas}
    for queue, endpoint in endpoints_of(settings, lambda _, error: unknown(error)):
        for saga in endpoint.sagas:
            needed = saga if saga.outbox else replace(saga, name=queue_name(settings, saga.name))
            declared = sagas.setdefault((needed.outbox, needed.name), needed)
            if declared != needed:
                raise SettingsError(
                    f"The saga table {needed.name!r} of {queue.worker and queue.worker.handler} is declared twice and "
                    f"differently: as {needed} and as {declared}. Give one of the sagas another table, or "
                    "correct the environment's file."
                )
    return replace(settings, sagas=tuple(sagas.values()))


def check_sagas(settings: Settings, database: Connection) -> None:
    """Check that the tables of all sagas of this database are deployed. Raises SagaNotDeployed."""
    wanted = settings.own_sagas
    registered = {each[0] for each in registered_sagas(database)} if wanted else set()
    for saga in wanted:
        if saga.name not in registered:
            raise SagaNotDeployed(
                f"The saga table {saga.name!r} is not deployed in {settings.target}. Run rowpost apply with an "
                "environment that names its endpoint as a worker or declares the table under sagas."
            )


def check_outboxes(settings: Settings) -> bool:
    """Check that the URLs of the business databases of all endpoints are known. Return whether there is any.

    Raises:
        SettingsError: a URL is not known.
    """
    known = {each.name: each.url for each in settings.outboxes}
    outboxes = [endpoint.outbox for _, endpoint in endpoints_of(settings) if endpoint.outbox is not None]
    for outbox in outboxes:
        outbox.find_url(known)
    return bool(outboxes)


def check_leases(settings: Settings, database: Connection) -> None:
    """Check that the queues of endpoints that lease their messages can do that.

    Raises:
        SettingsError: a setting of the queue's worker contradicts it, or the queue has no table of leases.
    """
    leasing = [(queue, endpoint) for queue, endpoint in endpoints_of(settings) if endpoint.needs_leases]
    with_leases = queues_with_leases(database) if leasing else set()
    for queue, endpoint in leasing:
        worker = queue.worker
        if worker is not None and (worker.exclusive or isinstance(worker.batch, int)):
            what = "exclusive: true" if worker.exclusive else f"batch: {worker.batch}"
            why = (
                "the next message would be handled while the first one is leased"
                if worker.exclusive
                else "each message has a lease and a commit of its own"
            )
            raise SettingsError(
                f"The queue {queue.name!r} cannot have `{what}`, or partitions, because {endpoint.name} has "
                f"receive='lease': {why}. Remove one of the two."
            )
        if queue.name not in with_leases:
            raise SettingsError(
                f"The queue {queue.name!r} has no table of leases, which {endpoint.name} needs because it has "
                f"receive='lease': write `{queue.name}: {{lease: true}}` below `queues:` in the environment's file and "
                "run rowpost apply. In development, rowpost run --install creates it."
            )


def needed_queues(settings: Settings) -> tuple[str, ...]:
    """Return the queues that must exist before the workers start: the input, error and audit queues.

    A worker whose handler cannot be imported uses the environment's error queue.
    """
    endpoints = {queue.name: endpoint for queue, endpoint in endpoints_of(settings)}
    names: dict[str, None] = {}
    for queue in settings.queues:
        if queue.worker is None:
            continue
        names[queue.name] = None
        endpoint = endpoints.get(queue.name)
        if endpoint is None:
            names[settings.supervisor.error_queue] = None
        else:
            copies = (endpoint.instance_queue, endpoint.error_queue, endpoint.audit_queue_in(settings))
            names.update(dict.fromkeys(queue_name(settings, copy) for copy in copies if copy is not None))
    return tuple(names)


def with_needs(settings: Settings) -> Settings:
    """Return settings that declare all that the workers need: input, error and audit queues, tables of sagas, features.

    They have a name of their own, so that the environment does not take for its own what it does not declare.

    Raises:
        SettingsError: two sagas share a table, or the environment's file declares it with another correlation.
    """
    leasing = {queue.name for queue, endpoint in endpoints_of(settings) if endpoint.needs_leases}
    more = tuple(QueueSettings(name, delayed=False) for name in undeclared_queues(settings))
    features = {name for _, endpoint in endpoints_of(settings) for name in features_of(endpoint)}
    named = f"{settings.environment} (run --install)"
    return with_sagas(
        replace(
            settings,
            environment=named,
            queues=tuple(
                replace(each, lease=True) if each.name in leasing else each for each in (*settings.queues, *more)
            ),
            features=tuple({*settings.features, *features}),
        )
    )


def undeclared_queues(settings: Settings) -> tuple[str, ...]:
    """Return the queues that the workers need and that the environment does not declare, so that `apply` does not make
    them.
    """
    return tuple(name for name in needed_queues(settings) if settings.queue(name) is None)


def subscribe_all(settings: Settings, database: Connection) -> None:
    """Subscribe all endpoints of these settings before any of them starts, so that no event is missed."""
    for _, endpoint in endpoints_of(settings):
        endpoint.subscribe(database, settings.subscription_table)


def endpoints_of(
    settings: Settings, unknown: Callable[[str, HandlerNotFound], None] = lambda queue, error: None
) -> Iterator[tuple[QueueSettings, Endpoint]]:
    """Yield the queues of these settings that have a worker, each with its endpoint.

    Args:
        settings: the environment.
        unknown: is called with each queue whose handler cannot be imported here, and with the error. The queue is
            skipped.

    Raises:
        SettingsError: a worker whose handler is an endpoint has settings about the retries of a function.
    """
    error_queue = settings.naming.explicit(settings.supervisor.error_queue)
    for queue in settings.queues:
        if queue.worker is not None:
            try:
                endpoint = resolve_handler(
                    queue.worker.handler, queue.name, retries=queue.worker.retries, error_queue=error_queue
                )
            except HandlerNotFound as error:
                unknown(queue.name, error)
            else:
                yield queue, endpoint


def _worker(settings: Settings, name: str, endpoint: Endpoint, declared: WorkerSettings | None) -> WorkerSettings:
    base = declared or WorkerSettings(name, strategy=compat_of(settings.compat).strategy)
    if base.handler != name:  # its retries were written for a function
        base = base.without_retries()
    return replace(
        base,
        handler=name,
        limit=endpoint.options.limit or (base.limit if base.has_limit else 0),
        concurrency=endpoint.options.concurrency or base.concurrency,
        strategy=endpoint.options.strategy or base.strategy,
    )
