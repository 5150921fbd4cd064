"""An endpoint with an outbox, for this process or for a process that kills itself at a named step.

The handler writes the order's number into the table `business` of the business database and sends a message to Billing.
Instead of the handler, the endpoint can have a saga that also keeps the numbers: one instance for all orders.
"""

import json
import os
import signal
import sys
from dataclasses import dataclass, field, replace

from rowpost.database.connection import Connection, connect_url
from rowpost.database.pool import Connections
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import business_settings, plan
from rowpost.endpoint.endpoint import Endpoint
from rowpost.outbox.declaration import Outbox
from rowpost.pipeline.lease import Leasing
from rowpost.pipeline.modes import OtherDatabases, business_of
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.sagas import Header, Saga, starts
from rowpost.settings.databases import OutboxSettings
from rowpost.settings.engine import engine_of
from rowpost.wire.message_types import message_type
from tests.support.crashing import TYPE, Order, write
from tests.support.fork_server import FORK_SERVER, Forked
from tests.support.pipelines import Steps

__all__ = [
    "SagaOrder",
    "deploy_sagas",
    "endpoint_of",
    "handle_all",
    "make_tally",
    "pipeline_of",
    "sales",
    "spawn_worker",
    "step_of",
    "tallying",
]


@message_type(TYPE)
@dataclass(frozen=True)
class SagaOrder(Order):
    """An order for the saga."""


@dataclass
class TallyState:
    group: str
    seen: list[int] = field(default_factory=list)


def make_tally(handle, concurrency="pessimistic", table="Tally") -> type[Saga]:
    """Return a saga that keeps the numbers of orders, and then handles the order as the handler does."""

    class Tally(
        Saga[TallyState],
        correlate={SagaOrder: Header("Shop.Group")},
        by="group",
        name=f"Shop.{table}",
        concurrency=concurrency,
        table=table,
    ):
        @starts(SagaOrder)
        def ordered(self, message, context):
            self.state.seen.append(message.number)
            handle(message, context)

    return Tally


def deploy_sagas(target, endpoint: Endpoint) -> None:
    """Create the tables of an endpoint's sagas in the business database of its outbox, without instances."""
    url = endpoint.outbox.url
    settings = replace(target.settings, sagas=endpoint.sagas)
    with connect_url(engine_of(url), url) as business:
        apply(business, plan(business_settings(settings, OutboxSettings(endpoint.outbox.database, url))))
        for each in endpoint.sagas:
            business.driver_connection.execute(f'DELETE FROM "{each.name}"')


def endpoint_of(
    queue: str,
    business: str | None,
    *,
    pessimistic=False,
    step=lambda name: None,
    then=lambda context: None,
    saga: str | None = None,
    lease: str | None = None,
) -> Endpoint:
    """Return the endpoint. `step` is called within the handler, `then` at its end. `saga` is a saga's concurrency.

    `lease`: messages are leased, and the handler writes within `context.commit()`. If it is "return", it only sends.
    """
    endpoint = Endpoint(
        queue,
        transaction_mode="receive_only",
        receive="lease" if lease else "transaction",
        outbox=Outbox("business", pessimistic, business),
        recoverability=Recoverability(immediate_retries=2, delayed_retries=0),
    )

    def handle_leased(order, context):
        step("in handler")
        context.send(Order(order.number), to="Billing", headers={"NServiceBus.EnclosedMessageTypes": TYPE})
        then(context)
        if lease == "commit":
            with context.commit() as connection:
                write(connection, order.number)
                step("in commit")

    def handle(order, context):
        if lease:
            return handle_leased(order, context)
        write(context.connection, order.number)
        step("in handler")
        context.send(Order(order.number), to="Billing", headers={"NServiceBus.EnclosedMessageTypes": TYPE})
        then(context)

    if saga is None:
        endpoint.handles(TYPE, Order)(handle)
    else:
        endpoint.saga(make_tally(handle, saga))
    return endpoint


#: for supervisors: the environment names the business database
sales = endpoint_of("Sales", None)
leasing = endpoint_of("Sales", None, lease="commit")
tallying = endpoint_of("Tallying", None, saga="pessimistic")


def pipeline_of(database: Connection, endpoint: Endpoint, *, step=None, **options) -> Pipeline:
    observers, reconnect = [] if step is None else [Steps(step)], database.open_second
    if endpoint.leases:
        business = business_of(endpoint, endpoint.name, OtherDatabases())
        options["leasing"] = Leasing(Connections(database.open_second), endpoint.name, business=business)
        database = options["leasing"].connection()
    return Pipeline(database, endpoint.name, endpoint, reconnect=reconnect, observers=observers, **options)


def handle_all(pipeline: Pipeline) -> list[Kind]:
    """Handle all messages of the queue, and return the outcome of each."""
    kinds = []
    while (kind := pipeline.process_one().kind) is not Kind.EMPTY:
        kinds.append(kind)
    return kinds


def spawn_worker(
    url: str, queue: str, business: str, die_at: str | None, *, time=1, pessimistic=False, saga=None, lease=None
) -> Forked:
    """Start a process that handles all messages of the queue, or kills itself at the n-th occurrence of a step."""
    arguments = {
        "url": url,
        "queue": queue,
        "business": business,
        "die_at": die_at,
        "time": time,
        "pessimistic": pessimistic,
        "saga": saga,
        "lease": lease,
    }
    path = os.pathsep.join(filter(None, sys.path))
    return FORK_SERVER.start(
        ["-m", "tests.support.outboxes", json.dumps(arguments)], env={**os.environ, "PYTHONPATH": path}
    )


def step_of(die_at: str | None, time: int):
    """Return a step function that kills this process at the n-th occurrence of a step."""
    left = [time]

    def step(name: str) -> None:
        if name == die_at:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return step


def main(
    url: str,
    queue: str,
    business: str,
    die_at: str | None,
    time: int,
    pessimistic: bool,
    saga: str | None,
    lease: str | None,
) -> None:
    step = step_of(die_at, time)
    database = connect_url(engine_of(url), url, "rowpost tests outbox")
    endpoint = endpoint_of(queue, business, pessimistic=pessimistic, step=step, saga=saga, lease=lease)
    pipeline = pipeline_of(database, endpoint, step=step)
    handle_all(pipeline)
    pipeline.close()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
