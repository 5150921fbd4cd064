"""Errors of the driver, injected into one operation of a worker after the other; see `desk.every_operation`."""

from __future__ import annotations

import random
from itertools import product
from types import SimpleNamespace

from rowpost.database.connection import connect_url
from rowpost.outbox.declaration import Outbox
from rowpost.settings.environment import load_settings
from rowpost.transactions.recovery import recover
from rowpost.transport.queue import Queue
from tests.support.campaign.kinds import Result, site_of
from tests.support.campaign.site import Site
from tests.support.desk import Desk, every_operation
from tests.support.faults import KINDS, driver_errors
from tests.support.probe import probe_for

__all__ = ["errors"]

SHAPES = (
    "plain",
    "sends_atomic_with_receive",
    "receive_only",
    "transaction_scope",
    "batch",
    "outbox",
    "pessimistic outbox",
)


def errors(times: int, dice: random.Random) -> Result:
    """Make operations fail, one by one and three in a row, by each kind of error and in each mode, until so many have failed."""
    result = Result()
    with site_of("outbox") as (site, _), connect_url("postgresql", site.server.url("queues")) as database:
        with connect_url("postgresql", site.server.url("shop")) as shop:
            combinations = list(product(SHAPES, KINDS, (1, 3)))
            dice.shuffle(combinations)
            for shape, kind, burst in combinations:
                if result.done.total() >= times:
                    break
                try:
                    result.done[f"{kind}, {shape}"] += _one(site, database, shop, shape, kind, burst)
                except AssertionError as wrong:
                    result.wrong.append(f"{shape}, {kind}, {burst} in a row: {wrong}")
    return result


def _one(site: Site, database, shop, shape: str, kind: str, burst: int) -> int:
    url = site.server.url("shop")
    target = SimpleNamespace(
        settings=load_settings(site.environment),
        connect=lambda: connect_url("postgresql", site.server.url("queues")),
        babelfish=False,
    )
    desk = Desk(Queue("Sales", database), probe_for(database), target)
    options: dict = {}
    match shape:
        case "batch":
            desk.batch = 3
        case "transaction_scope":
            desk.others = [probe_for(shop)]
            options = {"transaction_mode": shape, "participants": {"shop": url}}
            desk.recover = lambda: recover(database, {"shop": url})
        case "receive_only":
            options = {"transaction_mode": shape}
        case "outbox" | "pessimistic outbox":
            desk.business = probe_for(shop)
            options = {"transaction_mode": "receive_only", "outbox": Outbox("shop", shape != "outbox", url)}

    def make(faults):
        for table in ("rowpost.outbox", "rowpost.outbox_operations"):
            shop.driver_connection.execute(f"DELETE FROM {table}")
        return desk.plain(faults) if shape == "plain" else desk.endpoint(faults, **options)

    how = {"sends": shape != "plain", "resends": shape == "receive_only"}
    return every_operation(desk, make, driver_errors("postgresql")[kind], burst, **how)
