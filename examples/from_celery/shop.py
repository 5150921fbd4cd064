"""The program that sends, with a row of its own in the same transaction."""

import psycopg
from examples.from_celery.messages import ChargeCard

from rowpost import Endpoint

__all__ = ["place"]

# Celery: charge.delay(42), after the commit, and lost if the process dies before it
shop = Endpoint("Shop", send_only=True)
shop.route(ChargeCard, to="Billing")


def place(connection: psycopg.Connection, order_id: int) -> None:
    with connection.transaction():
        connection.execute("INSERT INTO placed (order_id) VALUES (%s)", (order_id,))
        with shop.open(connection) as bus:
            bus.send(ChargeCard(order_id))
