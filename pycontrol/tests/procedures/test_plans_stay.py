"""Receives and publishes stay on their indexes whatever the statistics say, and a peek writes nothing."""

import pytest

from rowpost.wire.message import OutgoingMessage


@pytest.fixture
def postgresql_only(database):
    if database.engine != "postgresql":
        pytest.skip("reads PostgreSQL's scan counters; on SQL Server FORCESEEK holds the plan")


def scans(sql, queue) -> tuple[int, int]:
    """Sequential scans, and rows that index scans read, of the queue's table so far."""
    sql.run("SELECT pg_stat_force_next_flush()")
    return sql.run(
        "SELECT seq_scan, coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relid = ?::regclass",
        sql.table(queue.name),
    )[0]


@pytest.mark.parametrize("verb", ["receive", "peek", "browse"])
def test_a_burst_after_the_statistics_saw_an_empty_table_is_read_by_the_index(
    postgresql_only, make_queue, open_database, sql, verb
):
    from rowpost.transport.queue import Queue

    database = open_database()
    queue = Queue(make_queue().name, database)
    for _ in range(10):  # the plan is cached while the queue is empty
        getattr(queue, verb)(1)
    sql.run(f"ANALYZE {sql.table(queue.name)}")
    for _ in range(10):
        getattr(queue, verb)(1)
    queue.send_many([OutgoingMessage(b"x" * 500)] * 5000)
    database.driver_connection.execute("SELECT pg_stat_force_next_flush()")
    before = scans(sql, queue)

    for _ in range(20):
        getattr(queue, verb)(1)

    database.driver_connection.execute("SELECT pg_stat_force_next_flush()")
    after = scans(sql, queue)
    assert after[0] == before[0], "a sequential scan"
    assert after[1] - before[1] <= 20 * 3, "rows read per call do not grow with the queue"


def wal_records(sql, call: str) -> int:
    """How many records of the write-ahead log a call writes; other sessions of the server write too, and do not count."""
    (plan,) = sql.value(f"EXPLAIN (ANALYZE, WAL, FORMAT JSON) SELECT * FROM rowpost.{call}")
    return plan["Plan"]["WAL Records"]


def test_peeking_writes_nothing(postgresql_only, queue, sql):
    queue.send_many([OutgoingMessage(b"x")] * 100)
    queue.peek()  # sets hint bits once

    assert wal_records(sql, '"peek_queue:Sales"(1000)') == 0
    assert wal_records(sql, '"receive_messages:Sales"(1)') > 0


def test_an_event_reads_its_own_subscriptions_and_queues_and_no_others(postgresql_only, open_database, sql):
    database = open_database()
    for number in range(500):
        name = f"Crowd{number}"
        database.call(
            "register_queue", queue_key=name, queue_name=name, schema_name="public", table_name=name, kind="external",
            body_string=False, clustered=True, delayed=False,
        )  # fmt: skip
        sql.run(
            'INSERT INTO public."SubscriptionRouting" (endpoint, topic, queueaddress) VALUES (?, ?, ?)',
            name, f"Shop.Crowd{number}", f'"public"."{name}"',
        )  # fmt: skip
    sql.run('ANALYZE public."SubscriptionRouting", rowpost.queue')
    database.call("publish_message", topics=["Shop.Crowd0", "Shop.Nobody"], headers="{}")
    before = rows_read(database, sql)

    for _ in range(20):
        database.call("publish_message", topics=["Shop.Crowd1", "Shop.Nobody"], headers="{}")

    assert rows_read(database, sql) - before <= 20 * 10


def rows_read(database, sql) -> int:
    """Rows of the registry and the table of subscriptions that scans of any kind read so far."""
    for each in (database.driver_connection, sql.database.driver_connection):
        each.execute("SELECT pg_stat_force_next_flush()")
    return sql.value(
        "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables"
        " WHERE relid IN ('rowpost.queue'::regclass, 'public.\"SubscriptionRouting\"'::regclass)"
    )
