"""The fixtures of the plugin: an empty database for each test, with the endpoints that it names."""

import os
from pathlib import Path

import psycopg
import pytest

from rowpost import Kind, Queue
from shop.charging import charging
from shop.messages import PlaceOrder
from shop.ordering import ordering
from shop.tables import create


@pytest.mark.parametrize("number", [1, 2])
def test_each_test_has_a_database_of_its_own(rowpost_url, rowpost_database, number):
    create(rowpost_url)  # it would fail if the tables were there, and their rows would be
    database = rowpost_database(ordering)
    with ordering.open(database) as bus:
        bus.send(PlaceOrder(1), to="Ordering")

    with psycopg.connect(rowpost_url) as own:
        assert own.execute("SELECT count(*) FROM placed").fetchone() == (0,)
        assert own.execute('SELECT count(*) FROM "Ordering"').fetchone() == (1,)


def test_it_is_on_the_server_that_the_tests_name_or_on_the_embedded_one(rowpost_url):
    named = os.environ.get("ROWPOST_TEST_URL")

    if named:
        assert data_folder(rowpost_url) == data_folder(named)
    else:
        assert data_folder(rowpost_url).is_relative_to(os.environ["ROWPOST_DATA"])


def data_folder(url: str) -> Path:
    with psycopg.connect(url) as connection:
        return Path(connection.execute("SELECT setting FROM pg_settings WHERE name = 'data_directory'").fetchone()[0])


def test_messages_go_from_one_endpoint_to_another(shop):
    with ordering.open(shop) as bus:
        bus.send(PlaceOrder(7), to="Ordering")

    assert ordering.process_one(shop).kind is Kind.HANDLED
    assert Queue("Charging", shop).peek() == 1
    assert charging.process_one(shop).kind is Kind.HANDLED
    assert charging.process_one(shop).kind is Kind.EMPTY
    assert shop.driver_connection.execute("SELECT order_id FROM charged").fetchall() == [(7,)]
