"""PgBouncer in front of PostgreSQL: its session mode works, and the modes that would lose a guarantee are refused.

In transaction mode a connection of the caller's own still sends. Several servers in one URL need no pooler.
"""

from dataclasses import replace

import psycopg
import pytest

from rowpost.database.connection import Connection, connect_url
from rowpost.database.dialects.postgresql.session import SETTINGS
from rowpost.database.requirements import check_server
from rowpost.errors import UnsupportedServer
from rowpost.transport.queue import Queue
from tests.support.pgbouncer import pgbouncer
from tests.support.wake_up import postgresql_only, wake_up_requested
from tests.support.workers import Running, eventually

__all__ = ["pgbouncer", "postgresql_only"]


def through(pgbouncer, mode: str) -> Connection:
    return connect_url("postgresql", pgbouncer(mode), "rowpost tests")


def test_in_session_mode_a_message_wakes_a_supervisor_and_is_handled(pgbouncer, shop, sql):
    with Running(replace(shop.settings(peek_delay=60.0), url=pgbouncer("session"))) as supervisor:
        supervisor.until(lambda: wake_up_requested(sql, shop.name), "it waits for a wake-up")
        with through(pgbouncer, "session") as database:
            Queue(shop.name, database).send(b"42")
        supervisor.until(lambda: shop.handled() == 1, "handled", 30.0)

    assert shop.depth() == 0


def test_in_session_mode_one_of_two_is_the_single_consumer_until_it_disconnects(pgbouncer, queue):
    def acquired(database: Connection) -> bool:
        return database.call("acquire_queue", queue_name=queue.name)[0].acquired

    first, second = through(pgbouncer, "session"), through(pgbouncer, "session")
    taken = acquired(first), acquired(second)
    first.close()
    eventually(lambda: acquired(second), "PgBouncer releases the lock of a client that is gone")
    second.close()

    assert taken == (True, False)


@pytest.mark.parametrize(
    ("mode", "said"), [("transaction", "shares the sessions"), ("statement", "allows no transactions")]
)
def test_a_mode_that_would_lose_a_guarantee_is_refused_and_the_remedy_is_named(pgbouncer, mode, said):
    with pytest.raises(UnsupportedServer, match=rf"{said}.*pool_mode to session"):
        through(pgbouncer, mode)


def test_the_transaction_mode_is_found_while_other_clients_are_busy(pgbouncer):
    others = [psycopg.connect(pgbouncer("transaction")) for _ in range(5)]
    for each in others:
        each.execute("SELECT 1")  # and keeps its transaction open

    with pytest.raises(UnsupportedServer, match="shares the sessions"):
        through(pgbouncer, "transaction")

    for each in others:
        each.close()


@pytest.mark.parametrize(("mode", "state"), [("session", "ok"), ("transaction", "bad"), ("statement", "bad")])
def test_the_doctor_names_the_mode(pgbouncer, target, mode, state):
    checks = list(check_server(replace(target.settings, url=pgbouncer(mode))))

    named = [check for check in checks if f"PgBouncer's {mode} mode" in check.found]
    assert [check.state for check in named] == [state]


def test_in_session_mode_the_sessions_have_the_protocols_settings_and_keep_them_after_a_handlers(pgbouncer):
    names, found = ("client_encoding", *SETTINGS), []
    for _ in range(2):  # the first one learns that a pooler answers
        with through(pgbouncer, "session") as database:
            connection = database.driver_connection
            found.append([connection.execute(f"SHOW {name}").fetchone()[0] for name in names])
            connection.execute(
                "SET TimeZone = 'Europe/Rome'; SET default_transaction_isolation = 'serializable'; SET client_encoding = 'LATIN1'"
            )
            database.reset_session({"session"})
            found.append([connection.execute(f"SHOW {name}").fetchone()[0] for name in names])

    assert found == [["UTF8", *SETTINGS.values()]] * 4


def test_in_transaction_mode_a_connection_of_the_callers_own_sends_in_its_transaction(pgbouncer, queue):
    with psycopg.connect(pgbouncer("transaction"), prepare_threshold=None) as connection:
        for number in range(20):
            Queue(queue.name, Connection.share(connection)).send(str(number).encode())
            connection.commit()
        Queue(queue.name, Connection.share(connection)).send(b"rolled back")
        connection.rollback()

    assert queue.peek() == 20


def test_a_prepared_statement_that_is_gone_is_explained(postgresql_only, database):
    database.call("list_queues")
    database.driver_connection.execute("DEALLOCATE ALL")

    with pytest.raises(UnsupportedServer, match=r"does not exist.*SQL of a handler.*pool_mode to session"):
        database.call("list_queues")


def test_of_several_servers_in_the_url_the_one_that_can_be_written_to_is_used(postgresql_only, sql):
    info = sql.database.driver_connection.info
    url = f"postgresql://{info.user}:{info.password}@/{info.dbname}?host=127.0.0.1,{info.host}&port=1,{info.port}&target_session_attrs=read-write"

    with connect_url("postgresql", url) as database:
        assert database.call("get_version")
