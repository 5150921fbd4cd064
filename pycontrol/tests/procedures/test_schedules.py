"""Schedules: the procedures of the folder schedule. Whoever moves a schedule on sends its message, once over all sessions."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from rowpost.errors import InvalidSchedule, QueueNotFound, ScheduleNotFound, ValueTooLong

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def no_schedules(sql):
    sql.run("DELETE FROM rowpost.schedule")


@pytest.fixture
def store(database, make_queue):
    """Stores a schedule of a queue of its own, and returns the queue's name."""
    queue = make_queue().name

    def register(name="hourly", **changed):
        given = {
            "queue_name": queue, "destination": queue, "message_type": "Shop.Count", "cron": "0 * * * *", "zone": "UTC", "missed": "once",
        }  # fmt: skip
        database.call("register_schedule", schedule_name=name, **given | changed)
        return queue

    return register


def ms(moment):
    return (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def watch(database, queue):
    (row,) = database.call("watch_schedules", queue_name=queue)
    return row


def set_back(sql, back=HOUR):
    """Let the ticks up to so long ago be done."""
    now = sql.database.call("list_schedules")[0].measured_at.replace(microsecond=0)
    sql.run("UPDATE rowpost.schedule SET ticked_to = ?, next_due = ?", now - back, now - back + timedelta(minutes=1))
    return now - back


def advance(database, queue, seen, to, **more):
    ((advanced,),) = database.call(
        "advance_schedule", queue_name=queue, schedule_name="hourly", seen_ms=ms(seen), ticked_to_ms=ms(to), **more
    )
    return advanced


def test_a_new_schedule_begins_with_the_servers_time(database, store):
    queue = store()

    found = watch(database, queue)

    assert found.ticked_to <= found.measured_at < found.ticked_to + HOUR
    assert (found.schedule_name, found.cron, found.interval_ms, found.zone, found.missed) == (
        "hourly", "0 * * * *", None, "UTC", "once",
    )  # fmt: skip
    assert (found.next_due, found.requested_at, found.is_paused) == (None, None, False)


def test_a_schedule_moves_on_once_from_what_was_seen(database, sql, store):
    queue = store()
    seen = set_back(sql)
    to, next_due = seen + timedelta(minutes=1), seen + 2 * HOUR

    first = advance(database, queue, seen, to, next_due_ms=ms(next_due), sent_due_ms=ms(to))
    again = advance(database, queue, seen, to, next_due_ms=ms(next_due), sent_due_ms=ms(to))

    (row,) = database.call("list_schedules")
    assert (first, again, row.next_due, row.sent_due, row.late_ms) == (True, False, next_due, to, 0)
    assert watch(database, queue).ticked_to == to


@pytest.mark.promise("ticks-follow-the-servers-clock")
def test_a_tick_that_is_not_due_by_the_servers_clock_is_not_done(database, sql, store):
    queue = store()
    seen = set_back(sql)

    assert not advance(database, queue, seen, seen + 2 * HOUR, sent_due_ms=ms(seen + 2 * HOUR))
    assert watch(database, queue).ticked_to == seen


def test_the_next_tick_of_a_new_schedule_is_stored_without_one_that_is_done(database, store):
    queue = store()
    seen = watch(database, queue).ticked_to

    assert advance(database, queue, seen, seen, next_due_ms=ms(seen + HOUR))
    assert (watch(database, queue).ticked_to, watch(database, queue).next_due) == (seen, seen + HOUR)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ticked_to_ms": -1},
        {"ticked_to_ms": 10, "next_due_ms": 10},
        {"ticked_to_ms": 10, "sent_due_ms": 11},
        {"ticked_to_ms": 10, "sent_due_ms": 0},
    ],
)
def test_a_schedule_does_not_move_back(database, store, wrong):
    queue = store()

    with pytest.raises(InvalidSchedule, match="only moves on"):
        database.call("advance_schedule", queue_name=queue, schedule_name="hourly", seen_ms=0, **wrong)


def test_a_schedule_that_another_session_moves_on_is_left_to_it_without_waiting(database, target, sql, store):
    queue = store()
    seen = set_back(sql)
    with target.connect() as other:
        other.begin()
        won = advance(other, queue, seen, seen + timedelta(minutes=1))
        lost = advance(database, queue, seen, seen + timedelta(minutes=1))
        other.rollback()

    assert (won, lost) == (True, False)
    assert advance(database, queue, seen, seen + timedelta(minutes=1))


@pytest.mark.promise("each-tick-once")
def test_of_many_sessions_one_moves_a_schedule_on(target, sql, store):
    queue = store()
    seen = set_back(sql)
    at_once, won = threading.Barrier(4), []

    def race():
        with target.connect() as database:
            at_once.wait()
            won.append(advance(database, queue, seen, seen + timedelta(minutes=1)))

    racers = [threading.Thread(target=race) for _ in range(4)]
    for each in racers:
        each.start()
    for each in racers:
        each.join()

    assert sorted(won) == [False, False, False, True]


def test_a_paused_schedule_does_not_move_on_and_what_was_due_meanwhile_is_not_due_afterwards(database, sql, store):
    queue = store()
    seen = set_back(sql)
    database.call("control_schedule", schedule_name="hourly", is_paused=True, reason="closed")
    (paused,) = database.call("list_schedules")

    moved = advance(database, queue, seen, seen + timedelta(minutes=1))
    database.call("control_schedule", schedule_name="hourly", is_paused=False)

    found = watch(database, queue)
    assert (moved, paused.is_paused, paused.reason, paused.late_ms, bool(paused.changed_by)) == (
        False, True, "closed", 0, True,
    )  # fmt: skip
    assert (found.is_paused, found.next_due, found.ticked_to > seen + timedelta(minutes=59)) == (False, None, True)


def test_a_pause_of_what_is_not_paused_loses_no_tick(database, sql, store):
    queue = store()
    seen = set_back(sql)

    database.call("control_schedule", schedule_name="hourly", is_paused=False)

    assert watch(database, queue).ticked_to == seen


def test_a_requested_tick_is_taken_once_and_changes_no_due_time(database, sql, store):
    queue = store()
    seen = set_back(sql)
    ((of,),) = database.call("control_schedule", schedule_name="hourly", run_now=True)
    requested = watch(database, queue).requested_at
    database.call("control_schedule", schedule_name="hourly", run_now=True)

    taken = [
        database.call("take_requested_tick", queue_name=queue, schedule_name="hourly", requested_at_ms=ms(requested))[0][0]
        for _ in range(2)
    ]  # fmt: skip

    assert (of, taken, watch(database, queue).requested_at, watch(database, queue).ticked_to) == (
        queue, [True, False], None, seen,
    )  # fmt: skip


def test_a_schedule_that_is_late_says_how_much(database, sql, store):
    store()
    set_back(sql, 2 * HOUR)

    assert database.call("list_schedules")[0].late_ms >= 119 * 60_000


def test_other_due_times_begin_anew_and_the_same_ones_go_on(database, sql, store):
    queue = store()
    seen = set_back(sql)
    store(missed="all", message_type="Shop.Other")
    same = watch(database, queue)
    store(cron=None, interval_ms=60_000)

    other = watch(database, queue)
    assert (same.ticked_to, same.next_due is None, same.missed) == (seen, False, "all")
    assert (other.ticked_to > seen, other.next_due, other.cron, other.interval_ms) == (True, None, None, 60_000)


def test_what_is_done_stays_done_if_the_due_times_change_after_the_clock_went_back(database, sql, store):
    queue = store()
    ahead = set_back(sql, -2 * HOUR)

    store(cron="30 * * * *")

    assert watch(database, queue).ticked_to == ahead


def test_a_schedule_that_is_removed_is_not_listed(database, store):
    store("hourly")
    store("nightly")

    database.call("unregister_schedule", schedule_name="hourly")

    assert [row.schedule_name for row in database.call("list_schedules")] == ["nightly"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"cron": None},
        {"interval_ms": 1000},
        {"cron": None, "interval_ms": 999},
        {"missed": "never"},
    ],
)
def test_due_times_that_cannot_be_are_refused(store, wrong):
    with pytest.raises(InvalidSchedule, match="either a cron expression or an interval"):
        store(**wrong)


def test_names_are_refused_that_are_too_long_or_unknown(database, store):
    with pytest.raises(ValueTooLong, match="150 characters"):
        store("x" * 151)
    with pytest.raises(QueueNotFound, match="Nowhere"):
        store(queue_name="Nowhere")
    with pytest.raises(ScheduleNotFound, match="'yearly'"):
        database.call("control_schedule", schedule_name="yearly", is_paused=True)
