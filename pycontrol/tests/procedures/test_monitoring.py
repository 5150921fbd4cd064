"""Metrics and upkeep of a queue: from metadata, and without stopping anybody."""

import re
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from rowpost.deploy.grants import grant
from rowpost.settings.environment import QueueSettings, Settings, SupervisorSettings
from rowpost.transport.maintenance import maintain_queue, queue_metrics
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage, format_timestamp
from rowpost.workers.tasks.queue_maintenance import OPERATIONS, _Maintenance, make_queue_maintenance
from tests.support.logins import logins
from tests.support.wake_up import postgresql_only

__all__ = ["postgresql_only"]

DEADLINE = 20.0  # seconds


def until(condition):
    """Waits until the condition holds; the server's statistics may be a second late."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"still not so after {DEADLINE} s"
        time.sleep(0.05)


def leave_dead_rows(sql, table, count):
    """Rows that came and went, and that nobody but the test may vacuum."""
    sql.run(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    sql.run(
        f"INSERT INTO {table} (id, headers, body)"
        f" SELECT gen_random_uuid(), repeat('h', 300), convert_to(repeat('b', 500), 'UTF8') FROM generate_series(1, {count})"
    )
    sql.run(f"DELETE FROM {table}")


@pytest.fixture
def counts(target):
    if target.babelfish:
        pytest.skip("Babelfish has no figures of tables in its catalog")


def test_the_metrics_of_an_empty_queue_are_zeros(make_queue, database):
    queue = make_queue()

    metrics = queue_metrics(database, queue.name)

    assert (metrics.oldest_age_ms, metrics.expired) == (None, 0)
    assert metrics.depth in (0, None)
    assert abs(metrics.measured_at - datetime.now(UTC).replace(tzinfo=None)) < timedelta(minutes=5)


def test_the_oldest_messages_age_runs_from_its_time_of_sending(make_queue, database):
    queue = make_queue()
    sent = datetime.now(UTC) - timedelta(hours=1)
    queue.send(b"old", {"NServiceBus.TimeSent": format_timestamp(sent)})
    queue.send(b"new", {"NServiceBus.TimeSent": format_timestamp(datetime.now(UTC))})

    metrics = queue_metrics(database, queue.name)

    assert 3_600_000 <= metrics.oldest_age_ms < 3_600_000 + 60_000


@pytest.mark.parametrize(
    "headers",
    [
        "", "{}", "not json", '{"NServiceBus.TimeSent":null}', '{"NServiceBus.TimeSent":"yesterday"}',
        '{"NServiceBus.TimeSent":"2026-99-99 99:99:99:999999 Z"}', '{"NServiceBus.TimeSent":""}', "[1]",
    ],
)  # fmt: skip
def test_a_first_message_without_a_readable_time_has_no_age_and_is_no_error(make_queue, database, headers):
    queue = make_queue()
    queue.send(b"x", headers)

    assert queue_metrics(database, queue.name).oldest_age_ms is None


def test_a_time_of_sending_in_the_future_is_an_age_of_zero(make_queue, database):
    queue = make_queue()
    queue.send(b"x", {"NServiceBus.TimeSent": format_timestamp(datetime.now(UTC) + timedelta(hours=1))})

    assert queue_metrics(database, queue.name).oldest_age_ms == 0


def test_expired_messages_are_counted(make_queue, database, sql):
    queue = make_queue()
    queue.send(b"x", time_to_be_received=timedelta(milliseconds=1))
    queue.send(b"y")
    sql.wait_until_expired(queue.name)

    assert queue_metrics(database, queue.name).expired == 1


def test_counters_and_depth_follow_sends_and_receives(make_queue, open_database, counts):
    queue = make_queue()
    with open_database() as database:  # a session's own counts reach the server's when it ends, at the latest
        other = Queue(queue.name, database)
        for _ in range(5):
            other.send(b"x")
        other.receive(2)

    watcher = open_database()

    def figures():
        metrics = queue_metrics(watcher, queue.name)
        return metrics.enqueued, metrics.dequeued, metrics.depth

    until(lambda: figures() == (5, 2, 3))


def test_the_depth_is_counted_and_not_what_the_statistics_say(make_queue, open_database, postgresql_only):
    queue = make_queue()
    for _ in range(300):
        queue.send(b"x")
    receiver = open_database()
    receiver.driver_connection.execute(
        "SET track_counts = off"
    )  # as receives whose statistics arrive before those of the sends: they are lost
    Queue(queue.name, receiver).receive(250)

    assert queue_metrics(receiver, queue.name).depth == 50
    Queue(queue.name, receiver).receive(250)
    assert queue_metrics(receiver, queue.name).depth == 0


def test_the_depth_does_not_contain_what_a_receiver_holds(make_queue, database, open_database, needs_readpast):
    queue = make_queue()
    for _ in range(3):
        queue.send(b"x")
    holder = open_database()
    holder.begin()
    Queue(queue.name, holder).receive()

    depth = queue_metrics(database, queue.name).depth
    holder.rollback()

    assert depth == 2


def test_a_depth_above_the_count_is_an_estimate_that_is_never_below_it(make_queue, database, sql, not_on_babelfish):
    not_on_babelfish("has no row counts in its catalog")
    queue = make_queue()
    queue.send_many([OutgoingMessage(b"x")] * 1200)
    if sql.database.engine == "postgresql":
        sql.run("SELECT pg_stat_reset()")

    assert 1000 <= queue_metrics(database, queue.name).depth <= 1200


def test_sizes_grow_with_messages(make_queue, database, counts):
    queue = make_queue()
    before = queue_metrics(database, queue.name)

    for _ in range(20):
        queue.send(bytes(range(256)) * 400)

    after = queue_metrics(database, queue.name)
    assert after.table_bytes > before.table_bytes
    assert after.index_bytes is not None


def test_metrics_do_not_wait_for_a_receiver_that_holds_the_first_message(
    make_queue, database, open_database, needs_readpast
):
    queue = make_queue()
    queue.send(b"held")
    holder = open_database()
    holder.begin()
    Queue(queue.name, holder).receive()

    metrics = queue_metrics(database, queue.name)

    assert metrics.expired == 0
    holder.rollback()


def test_metrics_start_at_an_anchor(make_queue, database):
    queue = make_queue()
    queue.send(b"old", {"NServiceBus.TimeSent": format_timestamp(datetime.now(UTC) - timedelta(hours=1))})
    anchor = queue.browse()[0].row_version

    assert queue_metrics(database, queue.name, after_row_version=anchor).oldest_age_ms is None


def test_a_healthy_queue_needs_no_upkeep(make_queue, database, target):
    queue = make_queue()
    queue.send(b"x")
    maintain_queue(database, queue.name)

    steps = maintain_queue(database, queue.name)

    if target.babelfish:
        assert [(step.action, step.state) for step in steps] == [("vacuum", "waits")]
    else:
        assert steps == []


def test_settings_that_somebody_took_away_come_back(make_queue, database, sql, target):
    if target.babelfish:
        pytest.skip("Babelfish: the table's settings are those of the server beneath")
    queue = make_queue()
    maintain_queue(database, queue.name)
    table = sql.table(queue.name)
    sql.run(
        f"ALTER TABLE {table} RESET (vacuum_truncate)"
        if database.engine == "postgresql"
        else f"ALTER TABLE {table} SET (LOCK_ESCALATION = TABLE)"
    )

    first, second = maintain_queue(database, queue.name), maintain_queue(database, queue.name)

    assert [(step.action, step.state) for step in first][:1] == [("settings", "done")]
    assert "settings" not in {step.action for step in second}


def test_maintenance_that_waits_for_a_lock_too_long_is_tried_again_at_the_next_round(make_queue, target, database, sql):
    if target.settings.engine != "postgresql":
        pytest.skip(
            "Babelfish: its stand-in takes no lock; on SQL Server the procedure itself catches the error of each step"
        )
    queue = make_queue()
    sql.run(f"ALTER TABLE {sql.table(queue.name)} RESET (vacuum_truncate)")
    emitted = []
    maintenance = _Maintenance(300.0, emitted.append)

    with target.connect() as holder:
        holder.begin()
        holder.driver_connection.execute(f"LOCK TABLE {sql.table(queue.name)} IN SHARE UPDATE EXCLUSIVE MODE")
        waits = maintenance(database, queue.name)

    assert (waits, emitted) == (300.0, [])
    assert maintenance(database, queue.name) == 300.0
    assert [event.action for event in emitted] == ["settings"]


def test_one_session_is_elected_and_another_when_it_has_gone(open_database):
    first, second = open_database(), open_database()
    duty = (
        f"test {uuid4()}"  # a supervisor of another test may be elected for the usual ones until its session has ended
    )

    elected = [bool(each.call("elect", duty=duty)[0][0]) for each in (first, second, first)]
    first.close()

    assert elected == [True, False, True]
    until(lambda: bool(second.call("elect", duty=duty)[0][0]))


def test_a_queue_with_many_dead_rows_comes_back_to_its_size_while_receivers_go_on(
    make_queue, open_database, sql, target
):
    if target.settings.engine != "postgresql":
        pytest.skip("dead rows are PostgreSQL's")
    queue = make_queue()
    leave_dead_rows(sql, sql.table(queue.name), 100_000)
    database = open_database()
    until(lambda: (queue_metrics(database, queue.name).dead_rows or 0) >= 100_000)
    before = queue_metrics(database, queue.name)
    done = threading.Event()
    waits = []

    def receive():
        with target.connect() as connection:
            other = Queue(queue.name, connection)
            while not done.is_set():
                started = time.monotonic()
                other.send(b"x")
                assert other.receive()
                waits.append(time.monotonic() - started)

    receiver = threading.Thread(target=receive)
    receiver.start()
    until(lambda: len(waits) > 20)

    steps = []

    def is_small():
        steps.extend(maintain_queue(database, queue.name))
        return queue_metrics(database, queue.name).table_bytes < before.table_bytes / 10

    try:
        until(is_small)
    finally:
        done.set()
        receiver.join()

    assert {step.state for step in steps} == {"done"}
    assert {step.action for step in steps} == {"vacuum"}
    assert max(waits) < 1.0


def test_the_statement_timeout_of_a_login_does_not_cut_maintenance(make_queue, database, sql):
    if database.engine != "postgresql":
        pytest.skip("a login of SQL Server has no limit for its statements")
    queue = make_queue()
    leave_dead_rows(sql, sql.table(queue.name), 10_000)
    database.driver_connection.execute("SET statement_timeout = '77s'")

    until(lambda: "vacuum" in {step.action for step in maintain_queue(database, queue.name)})

    assert database.driver_connection.execute("SHOW statement_timeout").fetchone() == ("0",)


def test_the_task_looks_after_a_queue_and_tells_what_it_did(make_queue, database, sql, target):
    if target.babelfish:
        pytest.skip("Babelfish: nothing to maintain from T-SQL")
    queue = make_queue()
    maintain_queue(database, queue.name)
    table = sql.table(queue.name)
    sql.run(
        f"ALTER TABLE {table} RESET (vacuum_truncate)"
        if database.engine == "postgresql"
        else f"ALTER TABLE {table} SET (LOCK_ESCALATION = TABLE)"
    )
    told = []
    settings = replace(target.settings, queues=(QueueSettings(queue.name),))

    task = make_queue_maintenance(settings, told.append)
    task.start()
    until(lambda: told)
    task.stop()

    assert [(event.queue, event.action) for event in told] == [(queue.name, "settings")]


@pytest.mark.parametrize(("engine", "features", "on"), [
    ("postgresql", (), True), ("sqlserver", (), False), ("sqlserver", ("maintenance",), True),
])  # fmt: skip
def test_on_sql_server_upkeep_runs_only_if_it_is_declared(engine, features, on):
    settings = Settings(engine=engine, url="nowhere", features=features, queues=(QueueSettings("Sales"),))

    task = make_queue_maintenance(settings, lambda event: None)

    assert task._queues == (["Sales", OPERATIONS] if on else [OPERATIONS])


def test_upkeep_deletes_operations_that_are_older_than_ninety_days(target, database, sql):
    sql.run("DELETE FROM rowpost.operation_log")
    for _ in range(2):
        database.call("record_operation", operation_name="pause", client="test")
    sql.run(
        "UPDATE rowpost.operation_log SET started_at = '2020-01-01' WHERE operation_id = (SELECT MIN(a.operation_id) FROM rowpost.operation_log AS a)"
    )
    told = []

    task = make_queue_maintenance(replace(target.settings, queues=()), told.append)
    task.start()
    until(lambda: told)
    task.stop()

    assert [(event.action, event.text) for event in told] == [
        ("operations", "deleted 1 operations that began more than 90 days ago")
    ]
    assert sql.value("SELECT COUNT(*) FROM rowpost.operation_log") == 1


def test_upkeep_by_a_login_that_is_no_operator_leaves_the_operations(target, database, sql):
    told = []
    with logins(sql, target.url) as made:
        name = made.make("nobody")
        with made.open(name) as connection:
            waits = _Maintenance(300.0, told.append)(connection, OPERATIONS)

    assert (waits, told) == (None, [])


def test_upkeep_can_be_switched_off(target):
    settings = replace(target.settings, supervisor=SupervisorSettings(maintenance_every=0.0))

    task = make_queue_maintenance(settings, lambda event: None)
    task.start()

    assert not task._thread.is_alive()


def test_a_login_that_may_not_maintain_is_told_the_smallest_right_and_it_is_enough(
    make_queue, database, sql, target, not_on_babelfish
):
    queue, told = make_queue(), []
    with logins(sql, target.settings.url) as made:
        name = made.make("worker")
        grant(database, name, receive_from=[queue.name])
        with made.open(name) as connection:
            refused = _Maintenance(60.0, told.append)(connection, queue.name)
        for statement in re.findall(r"GRANT EXECUTE ON .*? TO ..?LOGIN..?;", told[0].text):
            sql.run(statement.replace("LOGIN", name))
        with made.open(name) as connection:
            allowed = _Maintenance(60.0, told.append)(connection, queue.name)

    assert (refused, allowed) == (None, 60.0)
    assert [event.text for event in told if "may not" in getattr(event, "text", "")] == [told[0].text]
    assert "rowpost_operator" not in told[0].text
