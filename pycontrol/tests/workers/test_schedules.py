"""Schedules in supervisors: each tick is sent once, by however many of them, and with what its handler writes."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from rowpost.deploy.apply import apply
from rowpost.deploy.grants import grant
from rowpost.deploy.plan import plan
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.schedules import ScheduleSender, senders_of, with_schedules
from rowpost.errors import InvalidMessage, QueueNotGranted
from rowpost.settings.due_times import DueTimes
from rowpost.settings.environment import QueueSettings, ScheduleSettings, SupervisorSettings, WorkerSettings
from rowpost.transport.queue import Queue
from rowpost.transport.schedules import message_id, watch
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, SCHEDULE, SCHEDULE_DUE
from rowpost.wire.message_types import message_type
from rowpost.workers import events
from rowpost.workers.tasks.schedule_ticker import make_schedule_ticker
from tests.support.logins import logins
from tests.support.workers import Running, eventually

HOUR = timedelta(hours=1)


@message_type("Shop.MakeReport")
@dataclass(frozen=True)
class MakeReport:
    due: datetime


@pytest.fixture
def reports(target, sql):
    """An endpoint, and a function that stores its schedules and returns their senders."""
    sql.run("DELETE FROM rowpost.schedule")
    sql.empty("Sales")
    sql.empty("Billing")
    endpoint = Endpoint("Sales")

    def stored(*more):
        settings = settings_of(target, *more)
        settings = with_schedules(replace(settings, queues=worked(endpoint)))
        with target.connect() as database:
            apply(database, plan(settings))
        return settings

    endpoint.stored = stored
    HANDLERS["sales"] = endpoint
    return endpoint


HANDLERS = {}


def __getattr__(name):
    """Let settings name the endpoint of the test that runs."""
    if name in HANDLERS:
        return HANDLERS[name]
    raise AttributeError(name)


def worked(endpoint):
    return (QueueSettings(endpoint.queue, worker=WorkerSettings(f"{__name__}:sales")), QueueSettings("Billing"))


def settings_of(target, *schedules):
    return replace(
        target.settings,
        environment="schedules",
        url=target.url,
        schedules=schedules,
        supervisor=SupervisorSettings(delayed_lateness=0.1, idle_timeout=0.3),
    )


def set_back(sql, minutes=90):
    """Let the ticks of all schedules be done up to so many minutes before the full hour."""
    now = sql.database.call("list_schedules")[0].measured_at
    to = now.replace(minute=0, second=0, microsecond=0) - timedelta(minutes=minutes)
    sql.run("UPDATE rowpost.schedule SET ticked_to = ?, next_due = NULL", to)
    return to.replace(tzinfo=UTC)


def look(database, settings, queue="Sales"):
    """Look at a queue's schedules once, as a supervisor does. Return how many messages were sent."""
    senders = senders_of(settings)[queue]
    return sum(senders[seen.name].tick(database, queue, seen).sent for seen in watch(database, queue))


def sent(database, queue="Sales"):
    return [message.headers for message in Queue(queue, database).browse(1000)]


def due_times(database, queue="Sales"):
    return [datetime.fromisoformat(headers[SCHEDULE_DUE]) for headers in sent(database, queue)]


# ------------------------------------------------------------------ one look
def test_a_tick_is_sent_to_the_own_queue_with_an_id_that_follows_from_its_due_time(database, sql, reports):
    @reports.every("0 * * * *")
    def hourly(due: datetime) -> MakeReport:
        return MakeReport(due)

    settings = reports.stored()
    to = set_back(sql, 30)

    first, again = look(database, settings), look(database, settings)

    (headers,) = sent(database)
    due = to + timedelta(minutes=30)
    assert (first, again) == (1, 0)
    assert headers[MESSAGE_ID] == message_id("Sales.hourly", due)
    assert (headers[SCHEDULE], datetime.fromisoformat(headers[SCHEDULE_DUE])) == ("Sales.hourly", due)
    assert headers[ENCLOSED_MESSAGE_TYPES].startswith("Shop.MakeReport")


@pytest.mark.parametrize(("missed", "hours"), [("skip", []), ("once", [0]), ("all", [3, 2, 1, 0])])
def test_what_was_missed_is_skipped_sent_once_or_sent_for_each_tick(database, sql, reports, missed, hours):
    @reports.every("0 * * * *", missed=missed)
    def hourly(due: datetime) -> MakeReport:
        return MakeReport(due)

    settings = reports.stored()
    # the last tick was ten minutes ago
    last = sql.database.call("list_schedules")[0].measured_at.replace(second=0, microsecond=0) - timedelta(minutes=10)
    sql.run("UPDATE rowpost.schedule SET cron = ?, ticked_to = ?", f"{last.minute} * * * *", last - 4 * HOUR)

    look(database, settings)

    assert due_times(database) == [(last - each * HOUR).replace(tzinfo=UTC) for each in hours]
    assert watch(database, "Sales")[0].ticked_to == last.replace(tzinfo=UTC)


def test_a_tick_that_is_less_than_a_minute_old_is_not_skipped(database, sql, reports):
    @reports.every(timedelta(seconds=1), missed="skip")
    def each_second(due: datetime) -> MakeReport:
        return MakeReport(due)

    settings = reports.stored()
    set_back(sql)

    assert look(database, settings) == 1


def test_a_catch_up_is_sent_in_batches_that_commit_one_by_one(database, sql, reports):
    @reports.every(timedelta(minutes=1), missed="all")
    def each_minute(due: datetime) -> MakeReport:
        return MakeReport(due)

    settings = reports.stored()
    set_back(sql, 150)

    batches = [look(database, settings) for _ in range(4)]

    found = due_times(database)
    assert (batches[0], max(batches)) == (100, 100)
    assert sum(batches) == len(found) == len(set(found)) >= 150


def test_a_function_that_returns_none_sends_nothing_and_the_schedule_moves_on(database, sql, reports):
    @reports.every("0 * * * *")
    def never(due: datetime) -> MakeReport | None:
        return None

    settings = reports.stored()
    set_back(sql)

    assert look(database, settings) == 0
    (row,) = database.call("list_schedules")
    assert (sent(database), row.late_ms, row.next_due > row.measured_at) == ([], 0, True)


def test_a_function_that_fails_sends_nothing_and_the_tick_stays_due(database, sql, reports):
    broken = [True]

    @reports.every("0 * * * *")
    def hourly(due: datetime) -> MakeReport:
        if broken:
            raise ZeroDivisionError("no figures yet")
        return MakeReport(due)

    settings = reports.stored()
    to = set_back(sql)

    with pytest.raises(InvalidMessage, match=r"Sales\.hourly sent nothing.*ZeroDivisionError: no figures yet"):
        look(database, settings)
    ticked_to = watch(database, "Sales")[0].ticked_to
    broken.clear()

    assert (ticked_to, look(database, settings)) == (to, 1)


def test_a_message_that_cannot_be_sent_leaves_the_tick_due(database, sql, reports):
    @reports.every("0 * * * *", to="Nowhere")
    def hourly(due: datetime) -> MakeReport:
        return MakeReport(due)

    settings = reports.stored()
    to = set_back(sql)

    with pytest.raises(Exception, match="Nowhere"):
        look(database, settings)

    assert watch(database, "Sales")[0].ticked_to == to
    assert not database.in_transaction


def test_a_schedule_of_the_file_sends_its_body(database, sql, reports):
    cleaning = ScheduleSettings(
        "cleaning", "Sales", "Billing", "Shop.Clean", DueTimes("0 * * * *"), body='{"days": 30}'
    )
    settings = reports.stored(cleaning)
    set_back(sql)

    assert look(database, settings) == 1
    (message,) = Queue("Billing", database).browse(1)
    assert message.headers[ENCLOSED_MESSAGE_TYPES] == "Shop.Clean"
    assert Queue("Billing", database).receive(1)[0].body == b'{"days": 30}'


def test_a_paused_schedule_sends_only_what_is_requested(database, sql, reports):
    @reports.every("0 * * * *")
    def hourly(due: datetime) -> MakeReport:
        return MakeReport(due)

    settings = reports.stored()
    set_back(sql)
    database.call("control_schedule", schedule_name="Sales.hourly", is_paused=True)

    paused = look(database, settings)
    database.call("control_schedule", schedule_name="Sales.hourly", run_now=True)
    requested = [look(database, settings), look(database, settings)]

    assert (paused, requested, len(sent(database))) == (0, [1, 0], 1)


@pytest.mark.promise("ticks-follow-the-servers-clock")
def test_a_clock_that_went_back_repeats_nothing(database, sql, reports):
    @reports.every("0 * * * *", missed="all")
    def hourly(due: datetime) -> MakeReport:
        return MakeReport(due)

    settings = reports.stored()
    set_back(sql, -180)  # as if the clock had been three hours ahead

    assert [look(database, settings) for _ in range(2)] == [0, 0]


@pytest.mark.promise("each-tick-once")
def test_who_sees_the_same_tick_at_once_sends_it_once(database, target, sql, reports):
    @reports.every("0 * * * *")
    def hourly(due: datetime) -> MakeReport:
        return MakeReport(due)

    settings = reports.stored()
    set_back(sql)
    senders = senders_of(settings)["Sales"]
    with target.connect() as other:
        (seen,), (same,) = watch(database, "Sales"), watch(other, "Sales")
        results = [
            senders[seen.name].tick(session, "Sales", each).sent for session, each in ((database, seen), (other, same))
        ]

    assert (results, len(sent(database))) == ([1, 0], 1)


@pytest.mark.promise("each-tick-once")
def test_a_session_that_dies_between_moving_on_and_sending_leaves_the_tick_to_the_next_one(
    database, target, sql, reports
):
    @reports.every("0 * * * *")
    def hourly(due: datetime) -> MakeReport:
        return MakeReport(due)

    settings = reports.stored()
    set_back(sql)
    sender = senders_of(settings)["Sales"]["Sales.hourly"]
    with target.connect() as dying:

        class Dying(ScheduleSender):
            def _send(self, database, groups):
                super()._send(database, groups)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Dying(sender.endpoint, sender.collect).tick(dying, "Sales", watch(dying, "Sales")[0])
    after = len(sent(database))

    assert (after, look(database, settings), len(sent(database))) == (0, 1, 1)


def test_the_login_of_an_endpoint_sends_its_schedules_and_no_others(target, sql, reports):
    @reports.every("0 * * * *")
    def hourly(due: datetime) -> MakeReport:
        return MakeReport(due)

    settings = reports.stored(
        ScheduleSettings("other", "Billing", "Billing", "Shop.Clean", DueTimes("0 * * * *"), body="{}")
    )
    set_back(sql)
    with logins(sql, target.url) as made:
        name = made.make("worker")
        grant(sql.database, name, receive_from=["Sales"], send_to=["Sales"], tables=target.babelfish)
        with made.open(name) as database:
            done = look(database, settings)
            with pytest.raises(QueueNotGranted):
                watch(database, "Billing")

    assert done == 1


# ------------------------------------------------------------------ the task
def test_a_schedule_that_fails_delays_no_other_and_is_told_once(target, sql, reports):
    @reports.every(timedelta(seconds=1), name="a")
    def failing(due: datetime) -> MakeReport:
        raise ZeroDivisionError

    @reports.every(timedelta(seconds=1), name="b")
    def working(due: datetime) -> MakeReport:
        return MakeReport(due)

    settings, told = reports.stored(), []
    task = make_schedule_ticker(settings, told.append)
    task.start()
    try:
        eventually(
            lambda: sum(event.count for event in told if isinstance(event, events.ScheduleMoved)) >= 2, "two ticks"
        )
    finally:
        task.stop()

    (trouble,) = [event for event in told if isinstance(event, events.Trouble)]
    assert "schedule a" in trouble.error
    assert {event.schedule for event in told if isinstance(event, events.ScheduleMoved) and event.count} == {"b"}


def test_a_schedule_whose_time_zone_is_unknown_here_delays_no_other_and_is_told_once(target, sql, reports):
    for name in ("a", "b"):

        @reports.every("* * * * *", name=name)
        def often(due: datetime) -> MakeReport:
            return MakeReport(due)

    settings, told = reports.stored(), []
    set_back(sql, 5)
    sql.run("UPDATE rowpost.schedule SET zone = 'Mars/Olympus' WHERE schedule_name = 'a'")
    task = make_schedule_ticker(settings, told.append)
    task.start()
    try:
        eventually(lambda: sent(sql.database), "the other one sends")
    finally:
        task.stop()

    (trouble,) = [event for event in told if isinstance(event, events.Trouble)]
    assert "schedule a: There is no time zone 'Mars/Olympus'" in trouble.error


def test_a_supervisor_without_schedules_makes_no_statement_for_them(target, shop):
    task = make_schedule_ticker(shop.settings(), lambda event: None)

    task.start()

    assert not task._thread.is_alive()


# ------------------------------------------------------------------ supervisors
@pytest.fixture
def ticking(target, sql):
    """Settings of the endpoint of `tests.support.scheduled`, deployed, and its table."""
    if target.settings.engine != "postgresql":
        pytest.skip("the handler's SQL is PostgreSQL's")
    sql.run("DROP TABLE IF EXISTS ticks")
    sql.run("CREATE TABLE ticks (id text NOT NULL, schedule text NOT NULL, due timestamptz NOT NULL)")
    worker = WorkerSettings("tests.support.scheduled:reports", peek_delay=0.1, limit=2)
    queues = (QueueSettings("Scheduled", worker=worker), QueueSettings("error", delayed=False))
    settings = with_schedules(replace(settings_of(target), queues=queues))
    with target.connect() as database:
        apply(database, plan(settings))
    sql.empty("Scheduled")
    sql.run(
        "UPDATE rowpost.schedule SET ticked_to = ticked_to - interval '300 seconds' WHERE schedule_name = 'each-second'"
    )
    return settings


def ticks_are_whole(sql):
    """Assert that each tick from the first to the last was handled once, and return how many there are."""
    rows = sql.run(
        "SELECT count(*), count(DISTINCT id), count(DISTINCT due), extract(epoch FROM max(due) - min(due)) FROM ticks"
    )
    total, ids, dues, seconds = rows[0]
    assert total == ids == dues == int(seconds) + 1
    return total


@pytest.mark.promise("each-tick-once")
def test_three_supervisors_send_each_tick_once_and_its_handler_writes_once(ticking, sql):
    with Running(ticking) as first, Running(ticking), Running(ticking):
        first.until(lambda: sql.value("SELECT count(*) FROM ticks") >= 303, "300 missed ticks, and some more")

    assert ticks_are_whole(sql) >= 303
