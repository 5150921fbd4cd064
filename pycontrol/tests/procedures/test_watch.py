"""Who is told that somebody sleeps, and who wakes whom: watch_queue and the procedures that send."""

import threading
from datetime import timedelta

import psycopg
import pytest

from rowpost.database.connection import connect_url
from rowpost.database.dialects.postgresql.two_phase import open_participant
from rowpost.deploy.queues import create_queue
from rowpost.errors import InvalidCount
from rowpost.transport.delayed import move_due
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage
from tests.support.wake_up import listener, postgresql_only, wake_up_requested
from tests.support.workers import eventually

__all__ = ["listener", "postgresql_only"]

MINUTE = 60_000


def watch(queue, wake_up_ttl_ms=None, count=100):
    return queue.database.call("watch_queue", queue.name, count=count, wake_up_ttl_ms=wake_up_ttl_ms)[0][0]


# ------------------------------------------------------------------ on every engine
@pytest.mark.parametrize("wake_up_ttl_ms", [None, 0, MINUTE])
def test_watching_counts_what_waits_up_to_the_count(make_queue, wake_up_ttl_ms):
    queue = make_queue()
    empty = watch(queue, wake_up_ttl_ms)
    queue.send_many([OutgoingMessage(b"x")] * 3)

    assert (empty, watch(queue, wake_up_ttl_ms), watch(queue, wake_up_ttl_ms, count=2)) == (0, 3, 2)


def next_due_ms(queue):
    return queue.database.call("watch_queue", queue.name, count=100)[0][1]


def delay(queue, by):
    queue.database.call(
        "delay_message", queue.name, headers="{}", body=b"x", delay_ms=int(by / timedelta(milliseconds=1))
    )


def test_watching_says_when_the_next_delayed_message_is_due(make_queue):
    queue = make_queue()
    nothing = next_due_ms(queue)
    delay(queue, timedelta(days=100))
    far = next_due_ms(queue)
    delay(queue, timedelta(hours=1))
    near = next_due_ms(queue)
    delay(queue, timedelta(days=-100))

    assert (nothing, next_due_ms(queue), queue.peek()) == (None, 0, 0)
    assert abs(far - 100 * 86_400_000) < 60_000
    assert 3_540_000 < near <= 3_600_000


def test_watching_a_queue_without_a_delayed_table_counts_all_the_same(make_queue):
    queue = make_queue(delayed=False)
    queue.send(b"x")

    assert queue.database.call("watch_queue", queue.name, count=100)[0][:2] == (1, None)


def test_a_queue_that_gets_a_delayed_table_later_says_when_its_messages_are_due(make_queue):
    queue = make_queue(delayed=False)
    queue = make_queue(queue.name, delayed=True)
    delay(queue, timedelta(seconds=-1))

    assert next_due_ms(queue) == 0


def test_what_the_mover_has_moved_is_due_no_more(make_queue):
    queue = make_queue()
    delay(queue, timedelta(seconds=-1))
    move_due(queue.database, queue.name)

    assert queue.database.call("watch_queue", queue.name, count=100)[0][:2] == (1, None)


def test_watching_refuses_a_count_of_zero(make_queue):
    with pytest.raises(InvalidCount):
        watch(make_queue(), count=0)


# ------------------------------------------------------------------ who is told
def test_one_that_finds_nothing_sleeps_and_one_that_finds_a_message_does_not(postgresql_only, make_queue, sql):
    queue = make_queue()

    watch(queue, MINUTE)
    slept = wake_up_requested(sql, queue.name)
    queue.send(b"x")
    watch(queue, MINUTE)

    assert slept
    assert not wake_up_requested(sql, queue.name)


def test_whoever_looks_awake_takes_the_word_back(postgresql_only, make_queue, sql):
    queue = make_queue()
    watch(queue, MINUTE)

    watch(queue)

    assert not wake_up_requested(sql, queue.name)


def test_a_sleeper_that_never_comes_back_is_forgotten(postgresql_only, make_queue, sql):
    queue = make_queue()

    watch(queue, 50)

    eventually(lambda: not wake_up_requested(sql, queue.name), "the word runs out")


def test_a_sleeper_that_looks_again_renews_the_word(postgresql_only, make_queue, sql):
    queue = make_queue()
    watch(queue, 100)

    watch(queue, MINUTE)
    eventually(lambda: sql.value("SELECT pg_sleep(0.1) IS NOT NULL"), "the first word has run out")

    assert wake_up_requested(sql, queue.name)


def test_the_word_holds_though_the_transaction_rolls_back_and_writes_no_row(postgresql_only, make_queue, sql):
    queue = make_queue()
    queue.database.begin()
    watch(queue, MINUTE)
    queue.database.rollback()

    assert wake_up_requested(sql, queue.name)


# ------------------------------------------------------------------ who wakes
def by_plain_insert(queue, sql, target):
    sql.insert_minimal(queue.name, "{}", b"x")


def by_send_message(queue, sql, target):
    queue.send(b"x")


def by_send_messages(queue, sql, target):
    queue.send_many([OutgoingMessage(b"x")] * 10)


def by_dispatcher(queue, sql, target):
    queue.database.call("send_message", queue_name=queue.name, headers="{}", body=b"x")


def by_publishing(queue, sql, target):
    queue.database.call("subscribe", endpoint=queue.name, topic=queue.name, queue_address=queue.name)
    queue.database.call("publish_message", topics=[queue.name], headers="{}", body=b"x")
    queue.database.call("unsubscribe", endpoint=queue.name, topic=queue.name)


def by_moving_what_is_due(queue, sql, target):
    queue.database.call("delay_message", queue.name, headers="{}", body=b"x", delay_ms=-1)
    move_due(queue.database, queue.name)


WAYS = [by_send_message, by_send_messages, by_dispatcher, by_publishing, by_moving_what_is_due]


@pytest.mark.parametrize("send", WAYS)
def test_a_message_wakes_whoever_sleeps(target, make_queue, sql, listener, send):
    queue = make_queue()
    watch(queue, MINUTE)

    send(queue, sql, target)

    assert listener.heard() == [queue.name]


@pytest.mark.parametrize("send", WAYS)
def test_a_message_wakes_nobody_while_nobody_sleeps(target, make_queue, sql, listener, send):
    queue = make_queue()
    watch(queue, MINUTE)
    watch(queue)

    send(queue, sql, target)

    assert listener.heard() == []
    assert queue.peek() > 0


def test_a_plain_insert_of_another_product_waits_for_the_next_look(target, make_queue, sql, listener):
    queue = make_queue()
    watch(queue, MINUTE)

    by_plain_insert(queue, sql, target)

    assert listener.heard() == []
    assert watch(queue, MINUTE) == 1


def test_a_look_of_the_mover_at_nothing_wakes_nobody(make_queue, listener):
    queue = make_queue()
    watch(queue, MINUTE)

    move_due(queue.database, queue.name)

    assert listener.heard() == []


def test_sleepers_at_one_queue_are_not_woken_by_messages_for_another(make_queue, listener):
    queue, other = make_queue(), make_queue()
    watch(queue, MINUTE)

    other.send(b"x")

    assert listener.heard() == []


def test_a_message_that_is_rolled_back_wakes_nobody(make_queue, listener):
    queue = make_queue()
    watch(queue, MINUTE)
    queue.database.begin()

    queue.send(b"x")
    queue.database.rollback()

    assert listener.heard() == []


def test_a_sender_that_keeps_its_transaction_open_holds_back_nobody_elses_ring(make_queue, open_database, listener):
    queue = make_queue()
    watch(queue, MINUTE)
    slow = open_database()
    slow.begin()
    Queue(queue.name, slow).send(b"slow")

    queue.send(b"quick")
    first = listener.heard()
    slow.commit()

    assert (first, listener.heard()) == ([queue.name], [queue.name])


def test_a_queue_of_others_that_is_only_sent_to_rings_for_nobody(make_queue, database, sql, listener):
    queue = make_queue()
    name = f"{queue.name}x"
    sql.run(f"CREATE TABLE {sql.table(name)} (id uuid, expires timestamp, headers text, body bytea, seq bigserial)")
    create_queue(database, name, kind="external")

    Queue(name, database).send(b"x")

    assert listener.heard() == []
    assert sql.value(f"SELECT count(*) FROM {sql.table(name)}") == 1
    sql.drop_queue(name)


def test_a_session_may_send_without_waking_anybody(make_queue, listener):
    queue = make_queue()
    watch(queue, MINUTE)
    queue.database.driver_connection.execute("SET rowpost.wake_up = off")

    queue.send(b"x")

    queue.database.driver_connection.execute("RESET rowpost.wake_up")
    assert listener.heard() == []


def test_a_participant_of_a_transaction_over_databases_sends_and_can_still_be_prepared(
    target, make_queue, sql, postgresql_only
):
    """PostgreSQL refuses to prepare a transaction that has notified."""
    if sql.value("SHOW max_prepared_transactions") == "0":
        pytest.skip("max_prepared_transactions is 0 on this server")
    queue = make_queue()
    watch(queue, MINUTE)
    participant = open_participant("shop", target.url, "rowpost tests")
    participant.begin("watch-1")
    Queue(queue.name, participant.connection).send(b"x")

    participant.prepare()
    participant.commit()

    participant.close()
    assert queue.peek() == 1


def test_the_word_is_given_before_the_count(make_queue, open_database, target, sql, postgresql_only):
    """Or a message could commit between a count that does not see it and the word that it should have found."""
    queue = make_queue()
    with psycopg.connect(target.url) as holder:  # a lock on the table stops the count, not the word
        holder.execute(f"LOCK TABLE {sql.table(queue.name)} IN ACCESS EXCLUSIVE MODE")
        with connect_url("postgresql", target.url) as watcher:
            pid = watcher.driver_connection.info.backend_pid
            thread = threading.Thread(target=watch, args=(Queue(queue.name, watcher), MINUTE))
            thread.start()
            eventually(
                lambda: sql.value("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = ?", pid),
                "the watcher waits for the table",
            )
            given = wake_up_requested(sql, queue.name)
            holder.rollback()
            thread.join()

    assert given


def test_a_missing_sequence_is_found_and_costs_no_message(make_queue, sql, listener):
    queue = make_queue()
    sql.run(f'DROP SEQUENCE rowpost."waiters:{queue.name}"')
    watch(queue, MINUTE)

    queue.send(b"x")

    assert watch(queue, MINUTE) == 1
    ((name, finding, _, remedy),) = queue.database.call("check_queue", queue_name=queue.name)
    assert (name, finding) == (queue.name, "waiters_missing")
    sql.run(remedy)
    assert queue.database.call("check_queue", queue_name=queue.name) == []
