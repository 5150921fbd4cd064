"""The demo's second process: sends the burst in batches and prints the number of sent messages after each batch.

python -m rowpost.cli.demo.sender ENVIRONMENT QUEUE ORDERS, with an empty ENVIRONMENT for the default one.
"""

from __future__ import annotations

import socket
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

from rowpost.cli.demo.scenario import Scenario
from rowpost.cli.message import Envelope
from rowpost.database.connection import connect
from rowpost.errors import RowpostError
from rowpost.settings.environment import load_settings
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage

__all__ = ["main", "orders_of"]

#: messages per transaction; small, so that the progress is visible
BATCH = 250


def main(environment: str, queue: str, orders: int) -> None:
    """Send the burst."""
    with connect(load_settings(environment or None), application_name="rowpost demo sender") as database:
        destination = Queue(queue, database)
        messages = orders_of(orders)
        sent = 0
        while batch := list(islice(messages, BATCH)):
            sent += destination.send_many(batch)
            print(sent, flush=True)


def orders_of(orders: int) -> Iterator[OutgoingMessage]:
    """Yield the messages of a burst of so many orders."""
    envelope = Envelope({}, type_name="Shop.Messages.PlaceOrder", sender="Demo.Shop", machine=socket.gethostname())
    for body in Scenario(orders).bodies():
        row_id = uuid.uuid4()
        yield OutgoingMessage(body, envelope.headers(body, str(row_id), datetime.now(UTC)), row_id)


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    except RowpostError as error:
        sys.exit(str(error))
