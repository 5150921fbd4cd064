"""The Django project: what rolls back sends nothing, and migrations leave rowpost's tables alone.

test_readmes.py runs it as a whole, with Django's server and a worker. Django has one configuration for each process,
so that this runs in others too.
"""

import json

import psycopg
import pytest

from rowpost.database.connection import connect_url
from rowpost.transport.queue import Queue
from tests.support.console import Console, console

__all__ = ["console"]

MANAGE = "python -m examples.django_shop.manage"
ROWPOST = "rowpost --env examples/django_shop/django_shop.yml"
#: the answers of requests by Django's own client
REQUESTS = """
import json
from django.db import transaction
from django.test import Client
from examples.django_shop.shop.views import place

class Refused(Exception):
    pass

try:
    with transaction.atomic():
        place(1, "tea")
        raise Refused
except Refused:
    pass
client = Client(headers={"host": "localhost"}, raise_request_exception=False)
paths = ["/orders/2?product=tea", "/orders/2?product=tea", "/orders/3?product=" + "x" * 101]
print(json.dumps([client.put(path).status_code for path in paths]))
"""


def tables(url: str) -> set[str]:
    with psycopg.connect(url) as sql:
        return {row[0] for row in sql.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}


@pytest.fixture
def deployed(console: Console) -> Console:
    console.run(f"{ROWPOST} apply --yes")
    console.run(f"{MANAGE} migrate")
    return console


def test_what_rolls_back_sends_nothing(deployed: Console, embedded_url: str):
    said = deployed.run(f"{MANAGE} shell --no-imports -c '{REQUESTS.replace(chr(39), chr(34))}'")

    with psycopg.connect(embedded_url) as sql, connect_url("postgresql", embedded_url) as database:
        orders = sql.execute("SELECT order_id FROM shop_order").fetchall()
        messages = [json.loads(each.body) for each in Queue("Sales", database).browse(10)]
    assert json.loads(said.splitlines()[-1]) == [202, 409, 500]
    assert (orders, messages) == ([(2,)], [{"OrderId": 2}])


def test_migrations_go_back_and_forth_beside_rowposts_tables(deployed: Console, embedded_url: str):
    before = tables(embedded_url)
    deployed.run(f"{MANAGE} migrate shop zero")
    without = tables(embedded_url)
    deployed.run(f"{MANAGE} migrate")

    assert before - without == {"shop_order"}
    assert {"Sales", "error"} <= without
    assert tables(embedded_url) == before
    deployed.run(f"{ROWPOST} verify")
