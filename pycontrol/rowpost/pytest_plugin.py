"""Fixtures for tests of programs that use rowpost. pytest finds this module by itself.

    def test_an_order_is_charged(rowpost_database):
        database = rowpost_database(sales, billing)       # deployed in an empty database
        with sales.open(database) as bus:
            bus.send(PlaceOrder(42), to="Sales")
        assert sales.process_one(database).kind is Kind.HANDLED

The databases are on the embedded server, or on the server of the variable ROWPOST_TEST_URL, `postgresql://…`, whose
login may create databases.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rowpost.database.connection import Connection
    from rowpost.endpoint.endpoint import Endpoint

__all__ = ["rowpost_database", "rowpost_url"]


@pytest.fixture
def rowpost_url() -> Iterator[str]:
    """Yield the URL of an empty database of this test alone, which is dropped at its end."""
    from rowpost.testing import temporary_url

    with temporary_url(os.environ.get("ROWPOST_TEST_URL")) as url:
        yield url


@pytest.fixture
def rowpost_database(rowpost_url: str) -> Iterator[Callable[..., Connection]]:
    """Yield a function that deploys endpoints in the database of `rowpost_url`, and returns a connection to it.

    Create the tables of your handlers with `database.driver_connection`, which is a psycopg connection.
    """
    from rowpost.testing import deployed

    with ExitStack() as stack:

        def deploy(*endpoints: Endpoint) -> Connection:
            for endpoint in endpoints:
                stack.callback(endpoint.close)
            return stack.enter_context(deployed(rowpost_url, *endpoints))

        yield deploy
