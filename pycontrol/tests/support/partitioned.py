"""A handler of a partitioned queue, for tests: writes down in which order each customer's messages were handled."""

import random
import time

from rowpost.wire.message import Message

__all__ = ["CUSTOMER", "customer_of", "note"]

CUSTOMER = "Shop.Customer"


def note(message: Message, connection) -> None:
    """One row per message: its customer and its number; slow enough to be interrupted, and to be overtaken."""
    time.sleep(random.uniform(0, 0.01))
    mark = "%s" if type(connection).__module__.startswith("psycopg") else "?"
    customer, number = message.headers[CUSTOMER], int(message.body)
    connection.cursor().execute(f"INSERT INTO handled_order (customer, number) VALUES ({mark}, {mark})", (customer, number))


def customer_of(message: Message) -> str | None:
    """A function of the environment's file; fails where the header is not what it should be."""
    customer = message.headers.get(CUSTOMER)
    if customer == "fail":
        raise ValueError("no such customer")
    return customer
