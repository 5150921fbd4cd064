"""Deploy the shop's database, and query it from outside the handlers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from examples.shop.policy import policy

from rowpost import Connection, ErrorQueue, SchemaMissing, Settings, connect, load_settings
from rowpost.database import embedded
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.deploy.queues import drop_queue
from rowpost.endpoint.hosting import subscribe_all, with_endpoints
from rowpost.transport.error_queue import Filter
from rowpost.transport.failed_message import FailedMessage

__all__ = ["ENDPOINTS", "ERROR", "Order", "Shop"]

FOLDER = Path(__file__).parent
ENDPOINTS = [f"examples.shop.{name}:{name}" for name in ("sales", "billing", "shipping", "policy")]
ERROR = "Shop.error"


@dataclass(frozen=True)
class Order:
    """An order as the page shows it. The amount is in cents."""

    order_id: int
    customer: str
    amount: int
    paid: bool
    packed: bool
    shipped: bool

    @property
    def state(self) -> str:
        return "shipped" if self.shipped else "packed" if self.packed else "paid" if self.paid else "placed"


class Shop:
    """The shop's settings and queries on its database."""

    def __init__(self, settings: Settings | None = None) -> None:
        settings = settings or load_settings(FOLDER / "shop.yml")
        url = settings.url or embedded.start(settings.data_folder)
        self.settings = replace(with_endpoints(settings, ENDPOINTS), url=url)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        with connect(self.settings, application_name="rowpost example shop") as database:
            yield database

    def set_up(self, *, fresh: bool = False) -> None:
        """Deploy the shop. With `fresh`, first delete the data of earlier runs."""
        with self.connected() as database:
            if fresh:
                _drop_everything(database)
            apply(database, plan(self.settings))
            database.driver_connection.execute((FOLDER / "tables.sql").read_text(encoding="utf-8"))
            subscribe_all(self.settings, database)

    def orders(self) -> list[Order]:
        """Return the latest 100 orders, newest first."""
        with self.connected() as database:
            rows = database.driver_connection.execute(
                "SELECT o.order_id, o.customer, o.amount, p.order_id IS NOT NULL, s.order_id IS NOT NULL,"
                " s.shipped_at IS NOT NULL FROM shop.orders AS o LEFT JOIN shop.payments AS p USING (order_id)"
                " LEFT JOIN shop.shipments AS s USING (order_id) ORDER BY o.order_id DESC LIMIT 100"
            ).fetchall()
        return [Order(*row) for row in rows]

    def failed_payments(self) -> list[FailedMessage]:
        """Return the messages that failed in Billing."""
        with self.connected() as database:
            return list(ErrorQueue(database, ERROR).list(Filter(failed_queue="Shop.Billing")))

    def reminded(self) -> list[int]:
        """Return the orders that were not paid in time."""
        with self.connected() as database:
            return [
                row[0] for row in database.driver_connection.execute("SELECT order_id FROM shop.reminders").fetchall()
            ]

    def followed(self) -> list[str]:
        """Return the orders with an active saga instance."""
        with self.connected() as database:
            return [row[1] for row in database.call("list_sagas", policy.sagas[0].name, count=100)]

    def unblock_and_retry(self) -> int:
        """Unblock the card and retry the failed payments. Return how many were retried."""
        with self.connected() as database:
            database.driver_connection.execute("DELETE FROM shop.blocked_cards")
            errors = ErrorQueue(database, ERROR)
            failed = list(errors.list(Filter(failed_queue="Shop.Billing")))
            for message in failed:
                errors.retry(message.row_version)
        return len(failed)


def _drop_everything(database: Connection) -> None:
    database.driver_connection.execute("DROP SCHEMA IF EXISTS shop CASCADE")
    try:
        names = [row[0] for row in database.call("list_queues") if row[0].startswith("Shop.")]
        sagas = [row[3] for row in database.call("list_saga_types") if row[3].startswith("Shop_")]
    except SchemaMissing:
        return
    for name in names:
        drop_queue(database, name)
    for name in sagas:
        database.driver_connection.execute(f'DROP TABLE IF EXISTS public."{name}"')
