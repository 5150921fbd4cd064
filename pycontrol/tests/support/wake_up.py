"""Observe wake-up requests and notifications, for tests of wake-ups."""

import psycopg
import pytest

from rowpost.database.connection import Connection
from rowpost.deploy.apply import apply
from rowpost.deploy.entries import describe_queue
from rowpost.deploy.plan import build_plan
from rowpost.deploy.scripts import load_scripts
from rowpost.settings.environment import QueueSettings

__all__ = ["INSERT", "NotificationListener", "listener", "postgresql_only", "wake_everybody", "wake_up_requested"]

#: what an NServiceBus endpoint runs to send to a queue: a plain INSERT, with no procedure of rowpost
INSERT = "INSERT INTO \"{}\" (id, headers, body, expires) VALUES (gen_random_uuid(), '{{}}', '42', NULL)"


@pytest.fixture
def postgresql_only(target):
    if target.settings.engine != "postgresql":
        pytest.skip("senders do not notify on SQL Server: its supervisors peek")


class NotificationListener:
    """A session that receives the notifications of senders."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute("LISTEN rowpost")

    def heard(self) -> list[str]:
        """Return the queues that ended transactions notified; a notification of our own arrives after them."""
        self.connection.execute("NOTIFY rowpost, 'so far'")
        heard: list[str] = []
        for notify in self.connection.notifies(timeout=20):
            if notify.payload == "so far":
                return heard
            heard.append(notify.payload)
        raise AssertionError(f"our own notification did not arrive: {heard}")


@pytest.fixture
def listener(target, postgresql_only):
    session = NotificationListener(target.url)
    yield session
    session.connection.close()


def wake_up_requested(sql, queue: str) -> bool:
    """Return whether a supervisor requests notifications from the queue's senders."""
    until = sql.value("SELECT coalesce(pg_sequence_last_value(to_regclass(?)), 1)", f'rowpost."waiters:{queue}"')
    return until > sql.value("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")


def wake_everybody(database: Connection, queue: str) -> None:
    """Give one queue of a shared database the trigger of `wake_up: everybody`, without a deployment of an environment."""
    entry = describe_queue(QueueSettings(queue), database.engine, wake_up=True)
    apply(database, build_plan("tests", load_scripts(database.engine), [entry], whole=False, features=("spark",)))
