"""An endpoint for tests of transaction modes, for this process or for a process that kills itself at a named step.

The handler writes the order's number into the table `business` and sends a message to Billing. In the mode
transaction_scope it also writes into the table `business` of each participant.
"""

import json
import os
import signal
import sys
from dataclasses import dataclass
from itertools import count

from rowpost.database.connection import Connection, connect_url
from rowpost.endpoint.endpoint import Endpoint
from rowpost.pipeline.batch_size import batch_size
from rowpost.pipeline.batches import Batches
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from tests.support.fork_server import FORK_SERVER, Forked
from tests.support.pipelines import Steps

__all__ = ["Order", "at_number", "at_step", "endpoint_of", "pipeline_of", "spawn_worker"]

TYPE = "Shop.Messages.Order"


@dataclass(frozen=True)
class Order:
    number: int


def write(connection, number: int, place: str = "") -> None:
    mark = "%s" if type(connection).__module__.startswith("psycopg") else "?"
    connection.execute(f"INSERT INTO {place}business (number) VALUES ({mark})", (number,))


def endpoint_of(queue: str, mode: str, participants: dict[str, str], step=lambda name: None, then=lambda context: None):
    """Return the endpoint. `step` is called at the steps within the handler, `then` at its end."""
    endpoint = Endpoint(
        queue,
        transaction_mode=mode,
        participants=participants,
        recoverability=None if mode == "none" else Recoverability(immediate_retries=2, delayed_retries=0),
    )

    @endpoint.handles(TYPE, Order)
    def handle(order, context):
        write(context.connection, order.number)
        step("in handler")
        for name, place in participants.items():
            other = context.enlist(name)
            write(other, order.number, "" if "://" in place else f"{place}.dbo.")
            step(f"enlisted {name}")
        context.send(Order(order.number), to="Billing", headers={"NServiceBus.EnclosedMessageTypes": TYPE})
        then(context)

    return endpoint


def pipeline_of(database: Connection, endpoint: Endpoint, *, step=None, **options) -> Pipeline:
    observers = [] if step is None else [Steps(step)]
    return Pipeline(database, endpoint.name, endpoint, reconnect=database.open_second, observers=observers, **options)


def at_step(named: str, action):
    """Return a step function that acts at the step of that name."""
    return lambda name: action() if name == named else None


def at_number(number: int, action):
    """Return a step function that acts at the step of that number, counted from 1."""
    numbers = count(1)
    return lambda _: action() if next(numbers) == number else None


def spawn_worker(
    target, queue: str, mode: str, participants: dict[str, str], die_at: str | int | None, batch: int = 1
) -> Forked:
    """Start a process that handles all messages of the queue, or kills itself at the first step of that name or number.

    `batch` messages share a transaction.
    """
    arguments = {
        "engine": target.settings.engine, "url": target.url, "queue": queue, "mode": mode,
        "participants": participants, "die_at": die_at, "batch": batch,
    }  # fmt: skip
    path = os.pathsep.join(filter(None, sys.path))
    return FORK_SERVER.start(
        ["-m", "tests.support.crashing", json.dumps(arguments)], env={**os.environ, "PYTHONPATH": path}
    )


def main(
    engine: str, url: str, queue: str, mode: str, participants: dict[str, str], die_at: str | int | None, batch: int
) -> None:
    at = at_number if isinstance(die_at, int) else at_step
    step = at(die_at, lambda: os.kill(os.getpid(), signal.SIGKILL))
    database = connect_url(engine, url, "rowpost tests crashing")
    pipeline = pipeline_of(database, endpoint_of(queue, mode, participants, step), step=step)
    batches = Batches(pipeline, batch_size("off" if batch == 1 else batch, budget=1.0))
    while batches.process()[0].kind is not Kind.EMPTY:
        pass
    pipeline.close()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
