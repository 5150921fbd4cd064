"""A business database with an outbox, orders to Sales, and what became of them: for tests of outboxes."""

import pytest

from rowpost.database.connection import connect_url
from rowpost.settings.engine import engine_of
from rowpost.transport.queue import Queue
from tests.support.crashing import TYPE
from tests.support.probe import probe_for

__all__ = ["business", "ledger", "order", "remembered", "sent"]


@pytest.fixture
def business(target, business_url, sql):
    """The business database: ledger and outbox are empty, and so are Billing, error and the dispatches."""
    for name in ("Sales", "Billing", "error"):
        sql.empty(name)
    for table in ("dispatch", "failure"):
        sql.run(f"DELETE FROM rowpost.{table}")
    with connect_url(engine_of(business_url), business_url, "rowpost tests") as database:
        probe = probe_for(database, babelfish=target.babelfish)
        for table in ("business", "rowpost.outbox", "rowpost.outbox_operations"):
            probe.run(f"DELETE FROM {table}")
        yield probe


@pytest.fixture
def order(queue):
    """Sends an order; its message id is `m-<number>` unless another is given."""

    def send(number, message_id=None, **options):
        headers = {"NServiceBus.EnclosedMessageTypes": TYPE, "NServiceBus.MessageId": message_id or f"m-{number}"}
        queue.send(b'{"Number":%d}' % number, headers, **options)

    return send


def ledger(business):
    return sorted(row[0] for row in business.run("SELECT number FROM business"))


def sent(database):
    return sorted(int(message.body.decode()[10:-1]) for message in Queue("Billing", database).browse(1000))


def remembered(business):
    return sorted(row[0] for row in business.run("SELECT message_id FROM rowpost.outbox"))
