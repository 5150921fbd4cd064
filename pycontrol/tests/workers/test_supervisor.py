"""Running supervisors: stops, failing handlers, corrupt and expired messages, misbehaving handlers, outages."""

import os
import signal
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from rowpost.endpoint.resolve import resolve_handler
from rowpost.errors import HandlerNotFound, SettingsError
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.settings.environment import QueueSettings, Settings, WorkerSettings
from rowpost.settings.worker import FunctionRetries
from rowpost.transport.queue import Queue
from rowpost.wire.message import parse_timestamp
from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.supervision.supervisor import Supervisor
from tests.support.workers import Refusing, concurrent, eventually, running, supervisor_process

HEADERS = {
    "NServiceBus.MessageId": "43e9c0c6-57a8-4513-b15a-b43b0169b465",
    "NServiceBus.TimeSent": "2026-04-29 21:56:55:590807 Z",
    "NServiceBus.Retries": "2",
    "NServiceBus.FLRetries": "3",
    "NServiceBus.Retries.Timestamp": "2026-04-29 21:57:28:410222 Z",
    "NServiceBus.FailedQ": "Another@[dbo]",
    "NServiceBus.ExceptionInfo.HelpLink": "of an earlier failure",
    "Shop.Unknown": 'é漢🚀/"\n',
    "Shop.Null": None,
}


def ended_messages(supervisor):
    return supervisor.until(lambda: supervisor.seen(events.MovedToError), "a message in the error queue")


# ------------------------------------------------------------------ a handler that fails
@pytest.mark.promise("error-copy-keeps-message")
def test_a_handler_that_raises_ends_in_the_error_queue_after_its_attempts(shop):
    shop.queue.send(b"\x00body", HEADERS, time_to_be_received=timedelta(hours=1))

    with shop.run("fail", limit=2, attempts=4) as supervisor:
        moved = ended_messages(supervisor)
        failed = supervisor.seen(events.Failed)

    (error,) = shop.errors()
    assert sorted(event.attempts for event in failed) == [1, 2, 3, 4]
    assert len(moved) == 1
    assert (shop.handled(), shop.depth()) == (0, 0)
    assert error.body == b"\x00body"
    assert error.expires is None
    kept = {
        "NServiceBus.MessageId",
        "NServiceBus.TimeSent",
        "NServiceBus.Retries.Timestamp",
        "Shop.Unknown",
        "Shop.Null",
    }
    assert {name: error.headers[name] for name in kept} == {name: HEADERS[name] for name in kept}
    gone = {"NServiceBus.Retries", "NServiceBus.FLRetries", "NServiceBus.ExceptionInfo.HelpLink"}
    assert not gone & set(error.headers)


@pytest.mark.promise("default-retries")
def test_the_error_copy_says_what_failed_where_and_when(shop):
    shop.queue.send(b"42")
    before = datetime.now(UTC)

    with shop.run("fail", attempts=1) as supervisor:
        ended_messages(supervisor)

    (error,) = shop.errors()
    headers = error.headers
    assert headers["NServiceBus.FailedQ"] == shop.address
    assert headers["NServiceBus.ProcessingEndpoint"] == shop.name
    assert headers["NServiceBus.ProcessingMachine"] == os.uname().nodename
    assert headers["$.diagnostics.hostdisplayname"] == os.uname().nodename
    assert len(headers["$.diagnostics.hostid"]) == len(UUID(headers["$.diagnostics.hostid"]).hex) == 32
    assert before <= parse_timestamp(headers["NServiceBus.TimeOfFailure"]) <= datetime.now(UTC)
    info = {name.rpartition(".")[2]: value for name, value in headers.items() if ".ExceptionInfo." in name}
    stack = info.pop("StackTrace")
    assert info == {
        "Message ID": error.message_id,
        "Pipeline canceled": "False",
        "ExceptionType": "builtins.ValueError",
        "InnerExceptionType": "builtins.KeyError",
        "Message": "no such order: 42",
        "Source": "tests.support.handlers",
    }
    assert "in fail" in stack


@pytest.mark.promise("handlers-header-changes")
def test_header_changes_of_a_failing_handler_are_not_in_the_error_copy(shop):
    shop.queue.send(b"42", {"Shop.Kept": "yes"})

    with shop.run("fail", attempts=2) as supervisor:
        ended_messages(supervisor)

    (error,) = shop.errors()
    assert "Added.ByHandler" not in error.headers
    assert error.headers["Shop.Kept"] == "yes"


def test_attempts_are_counted_across_workers_and_restarts(shop, database):
    shop.queue.send(b"42")
    pipeline = Pipeline(
        database, shop.name, resolve_handler("tests.support.handlers:fail", shop.name, retries=FunctionRetries(3))
    )

    before = [pipeline.process_one() for _ in range(2)]
    with shop.run("fail", limit=1, attempts=3) as supervisor:
        ended_messages(supervisor)

    assert [(outcome.kind, outcome.attempts) for outcome in before] == [(Kind.FAILED, 1), (Kind.FAILED, 2)]
    assert [event.attempts for event in supervisor.seen(events.Failed)] == [3]


def test_several_workers_share_the_count_of_attempts(shop):
    shop.send(40)

    with shop.run("fail", limit=4, attempts=3) as supervisor:
        supervisor.until(lambda: len(shop.errors()) == 40, "all in the error queue")
        # a worker reports its events together, some time after its commits
        supervisor.until(lambda: len(supervisor.seen(events.Failed)) >= 3 * 40, "each failure is reported")
        supervisor.idle()

    attempts = [event.attempts for event in supervisor.seen(events.Failed)]
    assert [attempts.count(number) for number in (1, 2, 3)] == [40, 40, 40]
    # a worker's first failure is not behind a savepoint yet: another one may take that message once more
    assert len(attempts) <= 3 * 40 + 4


def test_each_of_many_failures_in_a_row_is_an_event(shop):
    shop.send(150)

    with shop.run("fail", limit=1, attempts=1) as supervisor:
        supervisor.until(
            lambda: supervisor.supervisor.snapshot().queue(shop.name).moved_to_error == 150, "all in the error queue"
        )
        supervisor.until(lambda: len(supervisor.seen(events.MovedToError)) == 150, "each is reported")

    assert len({event.message_id for event in supervisor.seen(events.MovedToError)}) == 150


def test_a_message_that_succeeds_after_a_failure_leaves_no_count_behind(shop, tmp_path):
    shop.queue.send(str(tmp_path / "tried").encode())

    with shop.run("fail_once", limit=1) as supervisor:
        supervisor.until(lambda: shop.handled() == 1, "the second attempt")

    assert [event.attempts for event in supervisor.seen(events.Failed)] == [1]
    assert shop.sql.value("SELECT COUNT(*) FROM rowpost.failure WHERE queue_key = ?", shop.name) == 0


def test_failing_messages_do_not_take_their_neighbours_with_them(shop):
    for number in range(60):
        shop.queue.send(b"bad" if number % 6 == 0 else b"good")

    with shop.run("fail_bad", limit=3, attempts=3) as supervisor:
        supervisor.until(lambda: len(shop.errors()) == 10, "ten in the error queue")
        supervisor.until(lambda: shop.handled() == 50, "fifty are handled")

    assert shop.handled_twice() == 0


def test_a_handler_that_exits_fails_like_any_other(shop):
    shop.queue.send(b"42")

    with shop.run("exit_process", attempts=2) as supervisor:
        ended_messages(supervisor)

    assert supervisor.seen(events.WorkerDied) == []
    assert shop.errors()[0].headers["NServiceBus.ExceptionInfo.ExceptionType"] == "builtins.SystemExit"


@pytest.mark.promise("reply-address-never-executes")
def test_an_injection_as_reply_address_executes_nothing_and_ends_in_the_error_queue(shop):
    shop.sql.run("DROP TABLE IF EXISTS Victim")
    shop.sql.run("CREATE TABLE Victim (id integer)")
    attack = "error] VALUES(NEWID(),'','',1,NULL,'',NULL); DROP TABLE [Victim]; --"
    other = 'error" (id) VALUES (gen_random_uuid()); DROP TABLE "victim"; --'
    for address in (attack, other, f"x@{attack}", f"{other}@[public]"):
        shop.queue.send(b"42", {"NServiceBus.ReplyToAddress": address})

    with shop.run("reply", attempts=2) as supervisor:
        supervisor.until(lambda: len(shop.errors()) == 4, "all in the error queue")

    assert shop.sql.run("SELECT * FROM Victim") == []
    assert shop.handled() == 0


@pytest.mark.promise("sends-are-atomic")
def test_the_sends_and_writes_of_a_failing_handler_are_rolled_back(shop):
    other = shop.make_queue()
    shop.queue.send(other.name.encode())

    with shop.run("forward_then_fail", attempts=2) as supervisor:
        ended_messages(supervisor)

    assert (other.peek(), shop.handled()) == (0, 0)


@pytest.mark.promise("handlers-sql-joins")
def test_the_sends_and_writes_of_a_handler_commit_with_the_message(shop):
    other = shop.make_queue()
    shop.queue.send(other.name.encode())

    with shop.run("forward") as supervisor:
        supervisor.until(lambda: shop.handled() == 1, "it is handled")

    assert [message.body for message in other.receive(10)] == [b"forwarded"]


@pytest.mark.promise("failing-recoverability")
def test_a_message_that_cannot_be_moved_is_critical_and_waits_until_it_can_be(shop):
    shop.queue.send(b"42")
    late = f"{shop.name}_error"

    with shop.run("fail", attempts=1, error_queue=late, breaker=CircuitBreaker(armed_wait=0.1)) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.Critical), "a critical event")
        shop.make_queue(late)
        ended_messages(supervisor)

    assert late in supervisor.seen(events.Critical)[0].error
    assert len(supervisor.seen(events.Critical)) == 1
    assert Queue(late, shop.queue.database).peek() == 1


# ------------------------------------------------------------------ messages that no handler sees
@pytest.mark.promise("corrupt-headers-move-unchanged")
def test_a_row_with_corrupt_headers_moves_unchanged_and_the_others_are_handled(shop):
    corrupt = ["{not JSON", "null", "[]", '{"A": 1}', '{"A": {"B": "C"}}']
    poison = [shop.sql.insert_minimal(shop.name, headers, b"\xff\x00") for headers in corrupt]
    shop.send(3)

    with shop.run() as supervisor:
        supervisor.until(lambda: shop.handled() == 3, "the others are handled")
        supervisor.until(lambda: len(supervisor.seen(events.Poisoned)) == len(corrupt), "the poison is moved")

    moved = {(each.id, each.raw_headers, each.body) for each in shop.errors()}
    assert moved == {(id, headers, b"\xff\x00") for id, headers in zip(poison, corrupt, strict=True)}
    assert shop.depth() == 0


@pytest.mark.promise("expired-is-dropped")
def test_an_expired_message_is_dropped_and_no_handler_sees_it(shop):
    shop.sql.insert_expired(shop.name, 3)
    shop.send(2)

    with shop.run() as supervisor:
        supervisor.until(lambda: shop.handled() == 2, "the others are handled")
        supervisor.idle()

    assert sum(event.count for event in supervisor.seen(events.Expired)) == 3
    assert (shop.depth(), shop.errors()) == (0, [])


@pytest.mark.promise("null-body")
def test_a_null_body_is_empty_bytes_and_a_control_message_needs_no_handler(shop):
    shop.queue.send(None)
    shop.queue.send(b"", {"NServiceBus.ControlMessage": "True"})

    with shop.run() as supervisor:
        supervisor.until(lambda: supervisor.seen(events.Handled) and supervisor.seen(events.Discarded), "both end")

    assert [bytes(row[0]) for row in shop.sql.run("SELECT body FROM handled")] == [b""]
    assert shop.errors() == []


@pytest.mark.promise("purge-on-startup")
def test_purge_on_startup_empties_the_queue_before_the_first_receive(shop):
    shop.send(500)

    with shop.run(purge_on_startup=True) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.Purged), "the purge")
        shop.send(3)
        supervisor.until(lambda: shop.handled() == 3, "what came later is handled")

    assert [event.count for event in supervisor.seen(events.Purged)] == [500]


# ------------------------------------------------------------------ handlers that break their promise
@pytest.mark.parametrize("handler", ["commit", "roll_back", "commit_then_fail"])
def test_a_handler_that_ends_the_transaction_fails_and_its_message_is_in_the_error_queue(shop, handler):
    shop.queue.send(b"42", {"Shop.Kept": "yes"})

    with shop.run(handler, attempts=3) as supervisor:
        moved = ended_messages(supervisor)

    (error,) = shop.errors()
    assert "HandlerBrokeTransaction" in moved[0].error
    assert error.headers["NServiceBus.ExceptionInfo.ExceptionType"].endswith("HandlerBrokeTransaction")
    assert (error.body, error.headers["Shop.Kept"], shop.depth()) == (b"42", "yes", 0)


def test_a_handler_that_closes_the_connection_fails_and_the_worker_goes_on(shop):
    shop.queue.send(b"42")

    with shop.run("close", attempts=2) as supervisor:
        ended_messages(supervisor)
        shop.queue.send(b"43")
        supervisor.until(lambda: len(shop.errors()) == 2, "the next one fails too")

    assert supervisor.seen(events.WorkerDied) == supervisor.seen(events.Trouble) == []
    assert (shop.handled(), shop.depth()) == (0, 0)


def test_a_handler_that_swallows_an_error_of_the_database_fails(shop):
    shop.queue.send(b"42")

    with shop.run("swallow", attempts=2) as supervisor:
        moved = ended_messages(supervisor)

    assert "HandlerBrokeTransaction" in moved[0].error
    assert (shop.handled(), shop.depth()) == (0, 0)


def test_a_handler_that_cannot_be_found_ends_the_supervisor_with_the_reason(shop):
    with shop.run("no_such_function") as supervisor:
        error = supervisor.ended()

    assert isinstance(error, HandlerNotFound)
    assert "no_such_function" in str(error)
    assert len(supervisor.seen(events.Critical)) == 1


def test_one_handler_that_cannot_be_found_does_not_stop_the_other_queues(shop):
    other = shop.make_queue()
    shop.send(3)

    with shop.run(others=(shop.worked(other.name, "no_such_function"),)) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.Critical, other.name), "the reason is told")
        supervisor.until(lambda: shop.handled() == 3, "the first queue is handled")

    assert supervisor.ended() is None


def test_settings_without_a_worker_are_refused():
    with pytest.raises(SettingsError):
        Supervisor(Settings(queues=(QueueSettings("Sales"),)))


def test_settings_with_too_short_a_peek_delay_are_refused():
    worker = WorkerSettings("shop:place", peek_delay=0.05)

    with pytest.raises(SettingsError):
        Supervisor(Settings(queues=(QueueSettings("Sales", worker=worker),)))


@concurrent
@pytest.mark.promise("deadlock-is-retried")
def test_deadlock_victims_among_handlers_are_retried_and_do_not_arm_the_circuit_breaker(shop):
    shop.sql.run("DROP TABLE IF EXISTS account")
    shop.sql.run("CREATE TABLE account (id integer PRIMARY KEY, amount integer)")
    shop.sql.run("INSERT INTO account (id, amount) VALUES (1, 0)")
    shop.sql.run("INSERT INTO account (id, amount) VALUES (2, 0)")
    shop.queue.send(b"12")
    shop.queue.send(b"21")

    with shop.run("cross", limit=2) as supervisor:
        supervisor.until(lambda: shop.handled() == 2, "both are handled in the end")

    assert shop.sql.run("SELECT amount FROM account ORDER BY id") == [(2,), (2,)]
    assert supervisor.seen(events.Trouble) == supervisor.seen(events.MovedToError) == []


# ------------------------------------------------------------------ stopping
@concurrent
@pytest.mark.promise("stop")
def test_a_stop_lets_running_handlers_finish_and_starts_no_other(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(10, str(gate).encode())

    with shop.run("wait_for_file", limit=2) as supervisor:
        supervisor.until(lambda: running(gate) == 2, "two handlers")
        supervisor.supervisor.stop()
        supervisor.until(lambda: supervisor.seen(events.Stopping), "stopping")
        gate.touch()
        supervisor.ended()

    assert (shop.handled(), shop.depth()) == (2, 8)
    assert {event.reason for event in supervisor.seen(events.WorkerStopped)} == {"stop"}


@concurrent
@pytest.mark.promise("stop")
def test_a_second_stop_interrupts_and_the_messages_are_back(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(3, str(gate).encode())

    with shop.run("wait_for_file", limit=2) as supervisor:
        supervisor.until(lambda: running(gate) == 2, "two handlers")
        supervisor.supervisor.stop()
        supervisor.supervisor.stop()
        supervisor.ended()

    supervisor.until(lambda: shop.depth() == 3, "all are back")
    assert shop.handled() == 0
    assert {event.reason for event in supervisor.seen(events.WorkerStopped)} == {"interrupted"}


@pytest.mark.promise("stop")
def test_a_handler_that_outlasts_the_stop_timeout_is_interrupted(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(1, str(gate).encode())

    with shop.run("wait_for_file", stop_timeout=0.3) as supervisor:
        supervisor.until(lambda: running(gate) == 1, "the handler")
        supervisor.supervisor.stop()
        supervisor.ended()

    supervisor.until(lambda: shop.depth() == 1, "the message is back")
    assert [event.now for event in supervisor.seen(events.Stopping)] == [False, True]


@concurrent
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.promise("stop")
def test_a_signal_stops_a_supervisor_process_gracefully(shop, tmp_path, number):
    gate = tmp_path / "gate"
    shop.send(5, str(gate).encode())

    with supervisor_process(shop, "wait_for_file", limit=2) as process:
        eventually(lambda: running(gate) == 2, "two handlers")
        process.send_signal(number)
        assert any("Stopping" in line for line in process.stdout)
        gate.touch()
        exitcode = process.wait(30)

    assert exitcode == 0
    assert (shop.handled(), shop.depth()) == (2, 3)


@concurrent
@pytest.mark.promise("stop")
def test_a_second_signal_ends_a_supervisor_process_at_once(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(2, str(gate).encode())

    with supervisor_process(shop, "wait_for_file", limit=2) as process:
        eventually(lambda: running(gate) == 2, "two handlers")
        process.send_signal(signal.SIGTERM)
        assert any("Stopping" in line for line in process.stdout)
        process.send_signal(signal.SIGTERM)
        process.wait(10)

    eventually(lambda: shop.depth() == 2, "both are back")
    assert shop.handled() == 0


def test_run_until_ends_when_the_condition_holds_and_may_be_called_again(shop):
    supervisor = Supervisor(shop.settings(limit=2), lambda event: None)
    shop.send(50)

    supervisor.run(until=lambda snapshot: snapshot.idle)
    first = shop.handled()
    shop.send(7)
    supervisor.run(until=lambda snapshot: snapshot.idle)

    assert (first, shop.handled()) == (50, 57)
    assert supervisor.snapshot().queue(shop.name).handled == 7


def test_a_snapshot_contains_the_figures(shop):
    shop.sql.insert_expired(shop.name, 2)
    shop.send(40)
    shop.queue.send(b"bad")
    shop.sql.insert_minimal(shop.name, "{", b"")

    with shop.run("fail_bad", limit=1, attempts=2) as supervisor:
        supervisor.until(lambda: shop.handled() == 40 and len(shop.errors()) == 2, "all is done")
        supervisor.idle()
        queue = supervisor.supervisor.snapshot().queue(shop.name)

    assert (queue.handled, queue.failed, queue.moved_to_error, queue.expired, queue.poison) == (40, 1, 1, 2, 1)
    assert (queue.depth, queue.busy, queue.died, queue.critical) == (0, 0, 0, False)
    assert queue.rate > 0


# ------------------------------------------------------------------ loss of the database
@pytest.fixture
def refusing(target):
    if target.settings.engine != "postgresql":
        pytest.skip("closes a PostgreSQL database; the worker's side of it is the same on every engine")
    return Refusing(target.url)


@pytest.mark.promise("outage")
def test_a_short_outage_of_the_database_raises_no_critical_event(shop, refusing):
    shop.send(300)

    with shop.run("slow_then_note", limit=2, breaker=CircuitBreaker(armed_wait=0.1)) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.Handled), "work has begun")
        with refusing:
            supervisor.until(lambda: supervisor.seen(events.Trouble), "trouble")
        supervisor.until(lambda: shop.handled() == 300, "all are handled")

    assert shop.handled_twice() == 0
    assert supervisor.seen(events.Critical) == supervisor.seen(events.WorkerDied) == []


@pytest.mark.promise("outage")
def test_a_long_outage_is_one_critical_event_and_concurrency_1_until_the_database_is_available(shop, refusing):
    shop.send(400)
    waits = CircuitBreaker(armed_wait=0.1, triggered_wait=0.3)

    with shop.run("slow_then_note", limit=3, breaker_seconds=0.5, breaker=waits) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.Handled), "work has begun")
        with refusing:
            supervisor.until(lambda: supervisor.seen(events.Critical), "a critical event")
            supervisor.until(lambda: supervisor.workers(shop.name) == 1, "concurrency 1")
        supervisor.until(lambda: supervisor.seen(events.Recovered), "recovery")
        supervisor.until(lambda: supervisor.workers(shop.name) == 3, "the old concurrency")
        supervisor.until(lambda: shop.handled() == 400, "all are handled")

    assert shop.handled_twice() == 0
    assert len(supervisor.seen(events.Critical)) == len(supervisor.seen(events.Recovered)) == 1
    assert [event.workers for event in supervisor.seen(events.TargetChanged)][:3] == [3, 1, 3]
