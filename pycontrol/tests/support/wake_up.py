"""Who sleeps, and who is woken: what tests of the wake-up look at."""

import psycopg
import pytest

__all__ = ["Ears", "asleep", "ears", "postgresql_only"]


@pytest.fixture
def postgresql_only(target):
    if target.settings.engine != "postgresql":
        pytest.skip("senders wake nobody on SQL Server: its supervisors look")


class Ears:
    """A session that hears whom senders wake."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute("LISTEN rowpost")

    def heard(self) -> list[str]:
        """What was notified by transactions that have ended: a notification of our own comes behind them."""
        self.connection.execute("NOTIFY rowpost, 'so far'")
        heard: list[str] = []
        for notify in self.connection.notifies(timeout=20):
            if notify.payload == "so far":
                return heard
            heard.append(notify.payload)
        raise AssertionError(f"not even our own notification came: {heard}")


@pytest.fixture
def ears(target, postgresql_only):
    session = Ears(target.url)
    yield session
    session.connection.close()


def asleep(sql, queue: str) -> bool:
    """Whether senders were told that somebody sleeps."""
    until = sql.value("SELECT coalesce(pg_sequence_last_value(to_regclass(?)), 1)", f'rowpost."waiters:{queue}"')
    return until > sql.value("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
