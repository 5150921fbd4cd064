"""The examples for users of Celery and procrastinate: their promise is one transaction at both ends.

test_readmes.py runs them as a whole.
"""

import asyncio
import importlib
from pathlib import Path

import psycopg
import pytest

from rowpost.database.connection import connect_url
from rowpost.recoverability.outcome import Kind
from rowpost.transport.queue import Queue
from tests.support.console import Console, console
from tests.support.documents import ROOT

__all__ = ["console"]


class Example:
    """An example, with empty queues and tables."""

    def __init__(self, name: str, url: str) -> None:
        self.url = url
        self.place_order = importlib.import_module(f"examples.{name}.shop").place
        self.billing = importlib.import_module(f"examples.{name}.billing").billing

    def place(self, order_id: int) -> None:
        if not asyncio.iscoroutinefunction(self.place_order):
            with psycopg.connect(self.url, autocommit=True) as connection:
                self.place_order(connection, order_id)
            return

        async def on_loop() -> None:
            async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection:
                await self.place_order(connection, order_id)

        asyncio.run(on_loop())

    def handle(self) -> Kind:
        with connect_url("postgresql", self.url) as database:
            kind = self.billing.process_one(database).kind
        self.billing.close()
        return kind

    def stored(self) -> dict[str, int]:
        """Rows of the tables, and messages in the queues."""
        with psycopg.connect(self.url) as sql, connect_url("postgresql", self.url) as database:
            rows = {name: sql.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("placed", "charged")}
            return rows | {name: Queue(name, database).peek(10) for name in ("Billing", "Mail")}


@pytest.fixture(params=["from_celery", "from_procrastinate"])
def example(request, console: Console, embedded_url: str) -> Example:
    folder: Path = ROOT / "examples" / request.param
    console.run(f"rowpost --env {folder}/shop.yml apply --yes")
    with psycopg.connect(embedded_url, autocommit=True) as sql:
        sql.execute((folder / "tables.sql").read_bytes())
    return Example(request.param, embedded_url)


def test_a_message_is_stored_with_the_row_and_removed_with_what_its_handler_writes(example: Example):
    example.place(42)
    placed = example.stored()
    handled = example.handle()

    assert placed == {"placed": 1, "charged": 0, "Billing": 1, "Mail": 0}
    assert handled is Kind.HANDLED
    assert example.stored() == {"placed": 1, "charged": 1, "Billing": 0, "Mail": 1}


def test_what_fails_leaves_nothing_at_either_end(example: Example):
    example.place(42)
    with pytest.raises(psycopg.errors.UniqueViolation):
        example.place(42)
    placed = example.stored()
    with psycopg.connect(example.url, autocommit=True) as sql:
        sql.execute("INSERT INTO charged (order_id) VALUES (42)")
    failed = example.handle()

    assert placed == {"placed": 1, "charged": 0, "Billing": 1, "Mail": 0}
    assert failed is Kind.DELAYED
    assert example.stored() == {"placed": 1, "charged": 1, "Billing": 0, "Mail": 0}
