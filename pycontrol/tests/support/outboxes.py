"""An endpoint with an outbox, for this process or for a process that kills itself at a named step.

The handler writes the order's number into the table `business` of the business database and sends a message to Billing.
"""

import json
import os
import signal
import sys

from rowpost.database.connection import Connection, connect_url
from rowpost.endpoint.endpoint import Endpoint
from rowpost.outbox.declaration import Outbox
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.settings.engine import engine_of
from tests.support.crashing import TYPE, Order, write
from tests.support.fork_server import FORK_SERVER, Forked
from tests.support.pipelines import Steps

__all__ = ["endpoint_of", "handle_all", "pipeline_of", "sales", "spawn_worker", "step_of"]


def endpoint_of(
    queue: str, business: str | None, *, pessimistic=False, step=lambda name: None, then=lambda context: None
) -> Endpoint:
    """Return the endpoint. `step` is called within the handler, `then` at its end."""
    endpoint = Endpoint(
        queue,
        transaction_mode="receive_only",
        outbox=Outbox("business", pessimistic, business),
        recoverability=Recoverability(immediate_retries=2, delayed_retries=0),
    )

    @endpoint.handles(TYPE, Order)
    def handle(order, context):
        write(context.connection, order.number)
        step("in handler")
        context.send(Order(order.number), to="Billing", headers={"NServiceBus.EnclosedMessageTypes": TYPE})
        then(context)

    return endpoint


#: for supervisors: the environment names the business database
sales = endpoint_of("Sales", None)


def pipeline_of(database: Connection, endpoint: Endpoint, *, step=None, **options) -> Pipeline:
    observers = [] if step is None else [Steps(step)]
    return Pipeline(database, endpoint.name, endpoint, reconnect=database.open_second, observers=observers, **options)


def handle_all(pipeline: Pipeline) -> list[Kind]:
    """Handle all messages of the queue, and return the outcome of each."""
    kinds = []
    while (kind := pipeline.process_one().kind) is not Kind.EMPTY:
        kinds.append(kind)
    return kinds


def spawn_worker(url: str, queue: str, business: str, die_at: str | None, *, time=1, pessimistic=False) -> Forked:
    """Start a process that handles all messages of the queue, or kills itself at the n-th occurrence of a step."""
    arguments = {
        "url": url,
        "queue": queue,
        "business": business,
        "die_at": die_at,
        "time": time,
        "pessimistic": pessimistic,
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


def main(url: str, queue: str, business: str, die_at: str | None, time: int, pessimistic: bool) -> None:
    step = step_of(die_at, time)
    database = connect_url(engine_of(url), url, "rowpost tests outbox")
    pipeline = pipeline_of(database, endpoint_of(queue, business, pessimistic=pessimistic, step=step), step=step)
    handle_all(pipeline)
    pipeline.close()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
