"""After a failover to a standby, right after a deployment, messages can be sent and received."""

import psycopg
import pytest

from rowpost.database.connection import connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.errors import DatabaseError
from rowpost.settings.environment import QueueSettings, Settings
from rowpost.transport.queue import Queue
from tests.support.standby import pair

__all__ = ["pair"]

# what an earlier release made
UNLOGGED = 'DROP SEQUENCE rowpost."waiters:{0}"; CREATE UNLOGGED SEQUENCE rowpost."waiters:{0}"'
# apply runs a script again whose text has changed since
OF_EARLIER_TEXT = "UPDATE rowpost.journal SET script_hash = '' WHERE script_name = %s"


def settings(url: str, *names: str) -> Settings:
    return Settings(url=url, queues=tuple(QueueSettings(name) for name in names))


def deploy(url: str, *names: str) -> None:
    with connect_url("postgresql", url) as database:
        apply(database, plan(settings(url, *names)))


def sequence(connection: psycopg.Connection, queue: str) -> tuple[int, str]:
    found = connection.execute(
        "SELECT oid, relpersistence::text FROM pg_class WHERE relname = %s", (f"waiters:{queue}",)
    )
    return found.fetchone()


def test_a_failover_right_after_apply_leaves_queues_that_work(pair):
    deploy(pair.url, "Sales")
    with connect_url("postgresql", pair.url) as database:
        Queue("Sales", database).send(b"before")

    pair.fail_over()

    with connect_url("postgresql", pair.url) as database:
        queue = Queue("Sales", database)
        database.call("watch_queue", "Sales", count=10, wake_up_ttl_ms=1000)
        queue.send(b"after")
        assert [message.body for message in queue.receive(10)] == [b"before", b"after"]
        assert database.call("check_queue", queue_name=None) == []


def test_unlogged_sequences_of_an_earlier_release_are_found_and_replaced(pair):
    deploy(pair.url, "Healthy", "Cured", "Applied")
    with psycopg.connect(pair.url, autocommit=True) as connection:
        for name in ("Healthy", "Cured", "Applied"):
            connection.execute(UNLOGGED.format(name))
        before = sequence(connection, "Healthy")
        connection.execute(OF_EARLIER_TEXT, ("tables/queue/create.sql:Healthy",))
        deploy(pair.url, "Healthy", "Cured", "Applied")
        assert (before[1], sequence(connection, "Healthy")) == ("u", (before[0], "p"))

    pair.fail_over()

    with connect_url("postgresql", pair.url) as database:
        findings = {row.queue_name: row for row in database.call("check_queue", queue_name=None)}
        assert {name: row.finding for name, row in findings.items()} == {
            "Cured": "waiters_unlogged",
            "Applied": "waiters_unlogged",
        }
        with pytest.raises(DatabaseError, match="bad magic number"):
            Queue("Cured", database).send(b"x")
        database.driver_connection.execute(findings["Cured"].remedy)
        database.driver_connection.execute(OF_EARLIER_TEXT, ("tables/queue/create.sql:Applied",))
    deploy(pair.url, "Healthy", "Cured", "Applied")

    with connect_url("postgresql", pair.url) as database:
        for name in ("Healthy", "Cured", "Applied"):
            Queue(name, database).send(b"x")
        assert database.call("check_queue", queue_name=None) == []
