"""A handler of a partitioned queue, for tests: records the order in which each customer's messages were handled."""

import random
import time

from rowpost.wire.message import Message

__all__ = ["CUSTOMER", "customer_of", "note"]

CUSTOMER = "Shop.Customer"


def note(message: Message, connection) -> None:
    """Write one row per message with its customer and number; slow enough to be interrupted or overtaken."""
    time.sleep(random.uniform(0, 0.01))
    mark = "%s" if type(connection).__module__.startswith("psycopg") else "?"
    customer, number = message.headers[CUSTOMER], int(message.body)
    connection.cursor().execute(
        f"INSERT INTO handled_order (customer, number) VALUES ({mark}, {mark})", (customer, number)
    )


def customer_of(message: Message) -> str | None:
    """Return the partition value, as a function of the environment's file; fails for the customer `fail`."""
    customer = message.headers.get(CUSTOMER)
    if customer == "fail":
        raise ValueError("no such customer")
    return customer
