"""Worker processes with several slots: tasks of async handlers, and threads. Real processes."""

import os
import signal

import pytest

from rowpost.errors import SettingsError
from rowpost.settings.environment import WorkerSettings
from rowpost.workers import events
from tests.support.async_handlers import two
from tests.support.workers import Shop, concurrent, running

HANDLERS = "tests.support.async_handlers"
pytestmark = concurrent


def run(shop, handler, **options):
    """Return a supervisor whose queue's handler is one of `async_handlers`."""
    return shop.run(handler, module=HANDLERS, **options)


def processes(path):
    return {int(file.name.rpartition(".")[2].partition("-")[0]) for file in path.parent.glob(f"{path.name}.*-*")}


@pytest.mark.parametrize("handler", ["wait_for_file", "wait_for_file_in_thread"])
def test_one_process_handles_as_many_messages_as_it_has_slots(shop, tmp_path, handler):
    gate = tmp_path / "gate"
    shop.send(25, str(gate).encode())

    with run(shop, handler, concurrency=20) as supervisor:
        supervisor.until(lambda: running(gate) == 20, "as many handlers as slots")
        snapshot = supervisor.supervisor.snapshot().queue(shop.name)
        during = len(processes(gate)), snapshot.workers, snapshot.busy, snapshot.limit
        gate.touch()
        supervisor.until(lambda: shop.handled() == 25, "all are handled")
        supervisor.idle()

    assert during == (1, 20, 20, 20)
    assert (shop.handled_twice(), shop.depth(), shop.errors()) == (0, 0, [])
    assert len(supervisor.seen(events.WorkerStarted)) == len(supervisor.seen(events.WorkerStopped)) == 1


@pytest.mark.promise("slots-are-the-limit")
def test_a_limit_above_the_concurrency_adds_processes(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(12, str(gate).encode())

    with run(shop, "wait_for_file", concurrency=2, limit=5) as supervisor:
        supervisor.until(lambda: running(gate) == 5, "as many handlers as the limit")
        during = len(processes(gate))
        gate.touch()
        supervisor.until(lambda: shop.handled() == 12, "all are handled")

    assert during == 3
    assert (shop.handled_twice(), shop.depth()) == (0, 0)


def test_surplus_slots_exit_and_one_process_stays(shop):
    shop.send(300)

    with run(shop, "note", concurrency=5, limit=15) as supervisor:
        supervisor.until(lambda: shop.handled() == 300, "all are handled")
        supervisor.until(lambda: supervisor.workers(shop.name) == 1, "the others have exited")
        shop.send(5)
        supervisor.until(lambda: shop.handled() == 305, "more are handled")

    assert shop.handled_twice() == 0
    assert supervisor.seen(events.WorkerDied) == []


def test_each_line_of_a_log_names_the_message_of_its_own_slot(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(8, str(gate).encode())

    with run(shop, "wait_for_file", concurrency=8) as supervisor:
        supervisor.until(lambda: running(gate) == 8, "the handlers")
        supervisor.until(lambda: len(supervisor.seen(events.Logged)) == 8, "their lines")
        gate.touch()
        supervisor.until(lambda: shop.handled() == 8, "all are handled")

    named = {line.message_id for line in supervisor.seen(events.Logged)}
    assert len(named) == 8
    assert None not in named


# ------------------------------------------------------------------ deaths
@pytest.mark.promise("death-counts-alone")
def test_of_several_messages_of_a_process_that_died_only_the_one_that_kills_it_alone_is_counted(shop):
    shop.send(10)
    shop.send(1, b"bad")
    shop.send(10)

    with run(shop, "die", concurrency=8, attempts=2) as supervisor:
        supervisor.until(lambda: len(shop.errors()) == 1, "the cause is in the error queue", 60.0)
        supervisor.until(lambda: shop.handled() == 20, "the others are handled", 60.0)

    (bad,) = shop.errors()
    assert bad.body == b"bad"
    assert (shop.handled_twice(), shop.depth()) == (0, 0)
    (moved,) = supervisor.seen(events.MovedToError)
    assert moved.attempts == 2  # each of them alone
    assert {event.id for event in supervisor.seen(events.Failed)} == {moved.id}
    assert supervisor.seen(events.Quarantined)


@pytest.mark.parametrize("handler", ["wait_for_file", "wait_for_file_in_thread"])
def test_messages_of_a_killed_process_are_handled_once_and_not_counted(shop, tmp_path, handler):
    gate = tmp_path / "gate"
    shop.send(6, str(gate).encode())

    with run(shop, handler, concurrency=6) as supervisor:
        supervisor.until(lambda: running(gate) == 6, "the handlers")
        (victim,) = processes(gate)
        gate.touch()
        os.kill(victim, signal.SIGKILL)
        supervisor.until(lambda: shop.handled() == 6, "all are handled")
        supervisor.idle()

    assert (shop.handled_twice(), shop.depth(), shop.errors()) == (0, 0, [])
    assert shop.sql.value("SELECT COUNT(*) FROM rowpost.failure") == 0


# ------------------------------------------------------------------ time limits
def test_at_its_time_limit_a_task_is_cancelled_and_its_process_goes_on(shop):
    shop.send(1, b"bad")
    shop.send(10)

    with run(shop, "hang", concurrency=5, time_limit=0.5, attempts=1, idle_timeout=60.0) as supervisor:
        supervisor.until(lambda: len(shop.errors()) == 1, "the message is in the error queue")
        supervisor.until(lambda: shop.handled() == 10, "the others are handled")

    assert "ran longer than its time limit of 0.5 s" in shop.errors()[0].headers["NServiceBus.ExceptionInfo.Message"]
    assert len(supervisor.seen(events.WorkerStarted)) == 1
    assert (supervisor.seen(events.WorkerDied), shop.handled_twice()) == ([], 0)


@pytest.mark.parametrize("handler", ["hang_in_thread", "refuse_to_end"])
def test_a_handler_that_cannot_be_ended_loses_its_session_and_its_process_is_replaced(shop, handler):
    shop.send(1, b"bad")
    shop.send(10)

    with run(shop, handler, concurrency=5, time_limit=0.5, attempts=1) as supervisor:
        supervisor.until(lambda: len(shop.errors()) == 1, "the message is in the error queue")
        shop.send(10)
        supervisor.until(lambda: shop.handled() == 20, "the others are handled")
        supervisor.until(lambda: len(supervisor.seen(events.WorkerStarted)) > 1, "another process")

    assert shop.errors()[0].body == b"bad"
    assert shop.handled_twice() == 0
    assert shop.handled() == 20


# ------------------------------------------------------------------ leases
@pytest.fixture
def lending(target, make_queue, sql, shop):
    """A shop whose queue has a table of leases."""
    return Shop(target, make_queue(lease=True), sql, make_queue, lease=True)


def leases(shop):
    return shop.queue.database.call("list_leases", shop.name, count=1000)


def test_tasks_with_leases_hold_no_connections(lending, target, tmp_path):
    if target.settings.engine != "postgresql":
        pytest.skip("reads PostgreSQL's view of activity")
    gate = tmp_path / "gate"
    lending.send(30, str(gate).encode())
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE ?"

    with run(lending, "leased", concurrency=30) as supervisor:
        supervisor.until(lambda: running(gate) == 30, "the handlers")
        supervisor.until(lambda: all(each.progress_percent == 50 for each in leases(lending)), "their progress")
        supervisor.until(lambda: lending.sql.value(sessions, "rowpost worker%") <= 8, "a few connections")
        held = len(leases(lending))
        gate.touch()
        supervisor.until(lambda: lending.handled() == 30, "all are handled")
        supervisor.idle()

    assert held == 30
    assert (lending.handled_twice(), lending.depth(), lending.errors(), leases(lending)) == (0, 0, [], [])
    assert supervisor.seen(events.Failed) == []


def test_of_several_leased_messages_of_a_process_that_died_only_the_cause_is_counted(lending):
    lending.send(10)
    lending.send(1, b"bad")

    with run(lending, "leased", concurrency=8) as supervisor:
        supervisor.until(lambda: len(lending.errors()) == 1, "the cause is in the error queue", 90.0)
        supervisor.until(lambda: lending.handled() == 10, "the others are handled", 60.0)

    (moved,) = supervisor.seen(events.MovedToError)
    assert {event.id for event in supervisor.seen(events.Failed)} == {moved.id}
    assert (lending.handled_twice(), lending.depth(), leases(lending)) == (0, 0, [])


def test_a_leased_task_loses_its_lease_at_its_time_limit(lending, tmp_path):
    gate = tmp_path / "gate"
    lending.send(1, str(gate).encode())
    lending.send(5)

    with run(lending, "leased", concurrency=3, time_limit=0.5) as supervisor:
        supervisor.until(lambda: lending.handled() == 5, "the others are handled")
        supervisor.until(lambda: len(lending.errors()) == 1, "it is in the error queue", 60.0)

    assert "ran longer than its time limit" in lending.errors()[0].headers["NServiceBus.ExceptionInfo.Message"]
    assert (lending.handled_twice(), lending.depth(), leases(lending)) == (0, 0, [])


def test_a_leased_message_of_a_process_that_is_killed_at_stop_timeout_comes_back_uncounted(lending, tmp_path):
    gate = tmp_path / "gate"
    lending.queue.send(str(gate).encode(), {"NServiceBus.EnclosedMessageTypes": "Shop.Hold"})

    with lending.run("leased", concurrency=2, stop_timeout=0.2) as supervisor:
        supervisor.until(lambda: running(gate) == 1, "the handler, in a thread")
        supervisor.supervisor.stop()
        supervisor.ended()

    assert {event.reason for event in supervisor.seen(events.WorkerStopped)} == {"killed"}
    assert (lending.depth(), leases(lending), supervisor.seen(events.Failed)) == (1, [], [])


# ------------------------------------------------------------------ stopping
def test_a_stop_lets_the_handlers_of_all_slots_end(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(6, str(gate).encode())

    with run(shop, "wait_for_file", concurrency=4) as supervisor:
        supervisor.until(lambda: running(gate) == 4, "the handlers")
        supervisor.supervisor.stop()
        gate.touch()
        supervisor.ended()

    assert (shop.handled(), shop.depth(), shop.errors()) == (4, 2, [])


def test_a_stop_by_force_cancels_the_tasks_and_counts_no_attempt(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(3, str(gate).encode())

    with run(shop, "clean_up", concurrency=4) as supervisor:
        supervisor.until(lambda: running(gate) == 3, "the handlers")
        supervisor.supervisor.stop()
        supervisor.supervisor.stop()
        supervisor.ended()

    supervisor.until(lambda: shop.depth() == 3, "the messages are back")
    assert (tmp_path / "gate-cleaned").exists()
    assert shop.handled() == 0
    assert shop.sql.value("SELECT COUNT(*) FROM rowpost.failure") == 0
    assert supervisor.seen(events.Failed) == supervisor.seen(events.WorkerDied) == []


def test_a_signal_to_the_process_ends_its_slots_after_their_messages(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(6, str(gate).encode())

    with run(shop, "wait_for_file", concurrency=3) as supervisor:
        supervisor.until(lambda: running(gate) == 3, "the handlers")
        (asked,) = processes(gate)
        os.kill(asked, signal.SIGTERM)
        gate.touch()
        supervisor.until(lambda: shop.handled() == 6, "all are handled")
        supervisor.until(lambda: supervisor.seen(events.WorkerStopped), "the process has ended")

    assert (supervisor.seen(events.WorkerDied), shop.handled_twice(), shop.errors()) == ([], 0, [])


# ------------------------------------------------------------------ what is declared
def test_a_concurrency_without_a_limit_is_the_limit():
    assert WorkerSettings("a:b", concurrency=50).limit == 50
    assert WorkerSettings("a:b", concurrency=50, limit=200).limit == 200
    assert WorkerSettings("a:b").limit == 4
    assert two.options.limit == 5


def test_a_concurrency_out_of_range_is_refused():
    from rowpost.endpoint.endpoint import Endpoint

    with pytest.raises(SettingsError, match="a worker process handles from 1 to 1,000 messages at the same time"):
        Endpoint("Sales", concurrency=0)


def test_a_handler_that_blocks_the_event_loop_is_named(shop):
    shop.send(1)

    with run(shop, "block", concurrency=2) as supervisor:
        supervisor.until(lambda: shop.handled() == 1, "it is handled")
        supervisor.until(lambda: supervisor.seen(events.Logged), "the warning")

    (line,) = supervisor.seen(events.Logged)
    assert "The handler block blocks the event loop" in line.text
    assert "async_handlers.py" in line.text
