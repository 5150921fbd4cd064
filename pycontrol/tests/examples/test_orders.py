"""The example with FastAPI, SQLAlchemy and Alembic: what rolls back, and what Alembic proposes.

test_readmes.py runs it as a whole.
"""

import asyncio
import re
import shutil
from pathlib import Path

import httpx
import psycopg
import pytest
from sqlalchemy import create_engine

from rowpost.database.connection import connect_url
from rowpost.transport.queue import Queue
from tests.support.console import Console, console
from tests.support.documents import ROOT

__all__ = ["console"]

FOLDER = ROOT / "examples" / "orders"


@pytest.fixture
def deployed(console: Console, monkeypatch) -> Console:
    """The example's tables and queues; this process finds them too."""
    monkeypatch.setenv("ROWPOST_DATA", console.variables["ROWPOST_DATA"])
    console.run(f"alembic -c {FOLDER}/alembic.ini upgrade head")
    console.run(f"rowpost --env {FOLDER}/orders.yml apply --yes")
    return console


def put(path: str, *products: str) -> list[int]:
    """Send requests to the application, one after the other."""
    from examples.orders import app

    async def send() -> list[int]:
        transport = httpx.ASGITransport(app.api, raise_app_exceptions=False)
        async with app.lifespan(app.api), httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [(await client.put(path, params={"product": each})).status_code for each in products]

    return asyncio.run(send())


@pytest.mark.parametrize("path", ["/orders/1", "/async/orders/1"])
def test_a_request_stores_its_row_and_its_message_or_neither(deployed, embedded_url, path):
    no_text = "tea\0"  # PostgreSQL refuses it when the session is flushed

    def stored() -> tuple[int, int]:
        with psycopg.connect(embedded_url) as sql, connect_url("postgresql", embedded_url) as database:
            return sql.execute("SELECT count(*) FROM web_order").fetchone()[0], Queue("Orders", database).peek(10)

    failed, nothing = put(path, no_text), stored()
    placed, both = put(path, "tea", "tea"), stored()

    assert (failed, nothing) == ([500], (0, 0))
    assert (placed, both) == ([202, 409], (1, 1))


def test_alembic_proposes_nothing_about_rowposts_tables_which_it_would_drop_otherwise(deployed, tmp_path: Path):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from examples.orders.tables import Base, sqlalchemy_url

    copy = shutil.copytree(FOLDER, tmp_path / "copy")
    deployed.run(f"alembic -c {copy}/alembic.ini revision --autogenerate -m nothing")
    engine = create_engine(sqlalchemy_url())
    with engine.connect() as connection:
        otherwise = compare_metadata(MigrationContext.configure(connection), Base.metadata)
    engine.dispose()

    (made,) = (copy / "migrations" / "versions").glob("*_nothing.py")
    assert re.findall(r"\bop\.\w+", made.read_text()) == []
    assert {"Orders", "Invoices", "Prints", "error"} <= {
        each[1].name for each in otherwise if each[0] == "remove_table"
    }
