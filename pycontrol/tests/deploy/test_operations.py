"""The operations scripts, run as they stand."""

import re
from pathlib import Path

import pytest

from rowpost.deploy.apply import apply
from rowpost.deploy.sql_text import split_batches
from rowpost.errors import QueueNotFound
from rowpost.settings.environment import QueueSettings
from rowpost.transport.queue import Queue

OPERATIONS = Path(__file__).parents[3] / "deploy" / "operations"


@pytest.fixture
def operate(shop, database):
    """Runs an operations script; returns the last rows."""

    def run(name, **values):
        path = OPERATIONS / "postgresql" / name if shop.engine == "postgresql" else OPERATIONS / name
        text = path.read_text(encoding="utf-8")
        for old, new in values.items():
            assert old in text
            text = text.replace(old, new)
        return [
            database.dialect.script(database.driver_connection, batch.text)
            for batch in split_batches(text, shop.engine)
        ][-1]

    return run


@pytest.fixture
def shop_queues(shop, database):
    apply(database, shop.plan(QueueSettings("audit"), QueueSettings("Sales"), QueueSettings("error")))


def test_the_audit_queue_is_archived_in_batches_in_order_and_once(shop, shop_queues, database, sql, operate):
    if shop.babelfish:
        pytest.skip("Babelfish knows no DELETE from a CTE")
    audit = Queue("audit", database)
    for number in range(25):
        audit.send(str(number).encode(), {"Number": str(number)})
    batch = shop.spelt("v_batch CONSTANT integer := 1000", "@batch int = 1000")
    keep = shop.spelt("v_keep CONSTANT integer := 0", "@keep int = 0")
    values = {batch: batch.replace("1000", "10"), keep: keep[:-1] + "3"}

    operate("archive_audit.sql", **values)
    operate("archive_audit.sql", **values)

    archived = [bytes(row[0]) for row in sql.run("SELECT body FROM audit_archive ORDER BY row_version")]
    assert archived == [str(number).encode() for number in range(22)]
    assert logged(database) == [("archive", "archive_audit.sql", "audit", None, 22)]
    assert [message.body for message in audit.receive(10)] == [b"22", b"23", b"24"]


def test_inspecting_shows_readable_bodies_and_changes_nothing(shop, shop_queues, database, operate):
    queue = Queue("Sales", database)
    queue.send(b'{"OrderId":42}', {"NServiceBus.EnclosedMessageTypes": "Shop.PlaceOrder"})
    queue.send(b"plain", "no json")

    rows = operate("inspect_queue.sql")

    assert [row[6] for row in rows] == ['{"OrderId":42}', "plain"]
    assert [row[3] for row in rows] == ["Shop.PlaceOrder", None]
    assert queue.peek() == 2


def logged(database):
    """The lines of the operation log: operation, program, queue, outcome, and messages."""
    rows = database.call("list_operations", count=10)
    return [(row.operation_name, row.client, row.queue_name, row.outcome, row.done_count) for row in rows]


SPELLINGS = {
    "postgresql": ["Sales", "Sales@[public]", '"public"."Sales"'],
    "sqlserver": ["Sales", "Sales@[dbo]", "Sales@[dbo]@[{database}]"],
}


@pytest.mark.parametrize("spelling", range(3))
def test_a_failed_message_returns_to_the_queue_where_it_failed_however_its_address_is_spelt(
    shop, shop_queues, database, operate, spelling
):
    if shop.babelfish:
        pytest.skip("Babelfish: INSERT EXEC misses the rows of an OUTPUT clause")
    address = SPELLINGS[shop.engine][spelling].format(
        database=database.dialect.database_name(database.driver_connection)
    )
    errors = Queue("error", database)
    row_id = errors.send(b"x", {"NServiceBus.FailedQ": address, "it's": "kept"})
    row_version = str(errors.browse()[0].row_version)

    row = {shop.spelt("bigint := 0", "bigint = 0"): shop.spelt("bigint := ", "bigint = ") + row_version}
    for _ in range(2):
        operate("return_to_source.sql", **row)

    (message,) = Queue("Sales", database).receive(10)
    assert (message.id, message.body, message.headers["it's"]) == (row_id, b"x", "kept")
    assert errors.peek() == 0
    assert logged(database) == [("retry", "return_to_source.sql", "error", "Sales", 1)]


def test_every_other_script_runs_twice(shop, shop_queues, database, operate):
    names = {
        path.name for path in (OPERATIONS / "postgresql" if shop.engine == "postgresql" else OPERATIONS).glob("*.sql")
    }
    if shop.babelfish:
        names -= {"archive_audit.sql", "show_waits.sql", "watch_deadlocks.sql"}  # views and events that Babelfish lacks

    for name in sorted(names - {"return_to_source.sql"}):
        for _ in range(2):
            operate(name)

    assert names


@pytest.mark.parametrize("gone", [True, False])
def test_a_message_that_cannot_return_stays_where_it_is(shop, shop_queues, database, operate, gone):
    if shop.babelfish:
        pytest.skip("Babelfish: INSERT EXEC misses the rows of an OUTPUT clause")
    errors = Queue("error", database)
    errors.send(b"x", {"NServiceBus.FailedQ": "Nowhere"})
    row_version = "0" if gone else str(errors.browse()[0].row_version)

    with pytest.raises(QueueNotFound), database.translated():
        operate(
            "return_to_source.sql",
            **{shop.spelt("bigint := 0", "bigint = 0"): shop.spelt("bigint := ", "bigint = ") + row_version},
        )
    database.rollback()

    assert errors.peek() == 1


def test_a_watch_of_deadlocks_that_runs_already_is_no_error():
    text = (OPERATIONS / "watch_deadlocks.sql").read_text(encoding="utf-8")

    (start,) = re.findall(r"BEGIN TRY\n.*STATE = START.*\nEND TRY\nBEGIN CATCH\n(.*\n.*)\nEND CATCH;", text)
    assert start.split() == ["IF", "ERROR_NUMBER()", "<>", "25705", "--", "it", "runs", "already", "THROW;"]
