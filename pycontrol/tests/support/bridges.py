"""Two databases with a bridge, for this process or for a process that kills itself at a named step.

The side `shop` has the endpoint Sales, the side `warehouse` the endpoint Stock, which receives the event OrderPlaced.
"""

import json
import os
import signal
import sys
import time as clock
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rowpost.database.connection import Connection, connect, connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.settings.bridge import BridgeEndpoint, BridgeSettings, BridgeSide
from rowpost.settings.engine import engine_of
from rowpost.settings.environment import QueueSettings, Settings
from rowpost.transport.queue import Queue
from rowpost.wire.address import DEFAULT_SCHEMA, parse_address
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, REPLY_TO_ADDRESS
from rowpost.workers.bridge.installation import install
from rowpost.workers.bridge.mover import MovedBatch, Mover
from tests.support.fork_server import FORK_SERVER, Forked

__all__ = ["EVENT", "SALES", "STEPS", "STOCK", "TYPE", "Sides", "bridge_of", "deploy_sides", "spawn_mover", "wait_for"]

TYPE, EVENT = "Shop.Messages.Reserve", "Shop.Messages.OrderPlaced"
#: what a mover does in one batch
STEPS = ("received", "sent", "copied", "removed")
SALES, STOCK = BridgeEndpoint("Sales", "Sales", "Sales"), BridgeEndpoint("Stock", "Stock", "Stock", (EVENT,))


def settings_of(name: str, url: str) -> Settings:
    engine = engine_of(url)
    return Settings(name, engine, url, default_schema=DEFAULT_SCHEMA[engine])


def bridge_of(shop_url: str, warehouse_url: str, **options) -> BridgeSettings:
    shop = BridgeSide("shop", settings_of("shop", shop_url), (SALES,), "error")
    warehouse = BridgeSide("warehouse", settings_of("warehouse", warehouse_url), (STOCK,), "error")
    return BridgeSettings("test", sides=(shop, warehouse), **options)


@dataclass
class Sides:
    """Both databases, and what a test does with them."""

    bridge: BridgeSettings
    shop: Connection
    warehouse: Connection

    @contextmanager
    def mover(self, *, back: bool = False, **options) -> Iterator[Mover]:
        """An elected mover with connections of its own, from the shop to the warehouse, or back."""
        here, there = self.bridge.sides[::-1] if back else self.bridge.sides
        with connect(here.settings) as source, connect(there.settings) as target:
            mover = Mover(source, target, self.bridge, here, there, **options)
            wait_for(mover.elect)  # the server may not have noticed yet that the last one was killed
            yield mover

    def move(self, *, back: bool = False) -> list[MovedBatch]:
        """Move all that waits, in one direction."""
        done = []
        with self.mover(back=back) as mover:
            while (moved := mover.move(SALES if back else STOCK)).total:
                done.append(moved)
            mover.settle()
        return done

    def order(self, number: int, *, times: int = 1, headers: dict | None = None, **options) -> None:
        """The shop's Sales sends to Stock, which lives in the warehouse."""
        own = {
            MESSAGE_ID: f"order {number}", ENCLOSED_MESSAGE_TYPES: TYPE, REPLY_TO_ADDRESS: self.address(self.shop, "Sales"), **(headers or {}),
        }  # fmt: skip
        for _ in range(times):
            Queue("Stock", self.shop).send(b"%d" % number, own, **options)

    @staticmethod
    def address(database: Connection, name: str) -> str:
        return database.canonical(parse_address(name))

    def numbers(self, database: Connection, queue: str) -> Counter:
        found, after = Counter(), None
        while rows := Queue(queue, database).browse(1000, after):
            found.update(int(row.body) for row in rows)
            after = rows[-1].row_version
        return found


def deploy_sides(shop_url: str, warehouse_url: str, **options) -> BridgeSettings:
    """Deploy the queues of both endpoints, and the bridge."""
    bridge = bridge_of(shop_url, warehouse_url, **options)
    first, second = bridge.sides
    for here, there, own in ((first, second, "Sales"), (second, first, "Stock")):
        with connect(here.settings) as database:
            queues = (QueueSettings(own), QueueSettings("error", delayed=False))
            apply(
                database,
                plan(
                    Settings(
                        here.name, here.settings.engine, default_schema=here.settings.default_schema, queues=queues
                    )
                ),
            )
            install(bridge, here, there, database)
    return bridge


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until the condition holds."""
    end = clock.monotonic() + seconds
    while not condition():
        assert clock.monotonic() < end, "it did not happen"
        clock.sleep(0.02)


def spawn_mover(shop_url: str, warehouse_url: str, die_at: str | None, *, time: int = 1, batch: int = 10) -> Forked:
    """Start a process that moves all messages of the shop, or kills itself at the n-th occurrence of a step."""
    arguments = {"shop_url": shop_url, "warehouse_url": warehouse_url, "die_at": die_at, "time": time, "batch": batch}
    path = os.pathsep.join(filter(None, sys.path))
    return FORK_SERVER.start(
        ["-m", "tests.support.bridges", json.dumps(arguments)], env={**os.environ, "PYTHONPATH": path}
    )


def main(shop_url: str, warehouse_url: str, die_at: str | None, time: int, batch: int) -> None:
    left = [time]

    def step(name: str) -> None:
        if name == die_at:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    bridge = bridge_of(shop_url, warehouse_url, batch_size=batch)
    here, there = bridge.sides
    source, target = (connect_url(engine_of(url), url, "rowpost tests bridge") for url in (shop_url, warehouse_url))
    mover = Mover(source, target, bridge, here, there, step=step)
    wait_for(mover.elect)
    while mover.move(STOCK).total:
        pass
    mover.settle()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
