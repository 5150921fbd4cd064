"""Endpoints whose handlers fail, hang, or kill their process, worked by real supervisors and worker processes."""

import time
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.wire.message import parse_timestamp
from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker
from tests.support import failing as recovery
from tests.support.failing import TYPE
from tests.support.workers import Running

HEADERS = {
    "NServiceBus.MessageId": "43e9c0c6-57a8-4513-b15a-b43b0169b465",
    "NServiceBus.EnclosedMessageTypes": f"{TYPE}, Shop.Messages, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null",
    "NServiceBus.ContentType": "application/json",
    "NServiceBus.ConversationId": "1d5fc7ad-0f38-4172-a469-b43b0169b466",
    "NServiceBus.TimeSent": "2026-04-29 21:56:55:590807 Z",
    "NServiceBus.FLRetries": "3",
    "NServiceBus.FailedQ": "Another@[dbo]",
    "Shop.Unknown": 'é漢🚀/"\n',
    "Shop.Null": None,
}
FAST = CircuitBreaker(armed_wait=0.1)


def run(shop, endpoint, **options):
    """A supervisor that works the queue with an endpoint of tests.recovery."""
    of_running = {"breaker": options.pop("breaker")} if "breaker" in options else {}
    settings = shop.settings("note", **{"limit": 1, **options})
    (queue,) = settings.queues
    worker = replace(queue.worker, handler=f"tests.support.failing:{endpoint}")
    settings = replace(
        settings,
        queues=(replace(queue, worker=worker),),
        supervisor=replace(settings.supervisor, delayed_lateness=0.1),
    )
    return Running(settings, **of_running)


def send(shop, body=b"42", headers=None, **options):
    return shop.queue.send(body, HEADERS if headers is None else headers, **options)


def in_error_queue(shop, supervisor, count=1):
    supervisor.until(lambda: len(shop.errors()) == count, "in the error queue")
    supervisor.until(lambda: len(supervisor.seen(events.MovedToError)) == count, "and told so")
    return shop.errors()


def calls(shop):
    """Calls of handlers, as (row id, seconds since 1970), in their order."""
    rows = [(row, float(bytes(body))) for row, body in shop.sql.run("SELECT id, body FROM handled")]
    return sorted(rows, key=lambda call: call[1])


# ------------------------------------------------------------------ retries
@pytest.mark.promise("default-retries")
def test_with_the_defaults_a_failing_handler_is_called_24_times(shop):
    send(shop)

    with run(shop, "defaults") as supervisor:
        (error,) = in_error_queue(shop, supervisor)

    assert recovery.defaults.recoverability == Recoverability(delay_increase=recovery.SOON)
    assert (Recoverability().immediate_retries, Recoverability().delayed_retries) == (5, 3)
    assert Recoverability().delay_increase == timedelta(seconds=10)
    assert len(calls(shop)) == 24
    assert [len(supervisor.seen(kind)) for kind in (events.Delayed, events.MovedToError)] == [3, 1]
    assert set(header_set(error)) >= {
        "FailedQ", "MessageId", "TimeOfFailure", "ProcessingEndpoint", "ProcessingMachine", "EnclosedMessageTypes",
        "ContentType", "ConversationId", "ExceptionInfo.ExceptionType", "ExceptionInfo.InnerExceptionType",
        "ExceptionInfo.Message", "ExceptionInfo.Source", "ExceptionInfo.StackTrace",
    }  # fmt: skip
    assert len(error.headers["$.diagnostics.hostid"]) == 32
    assert error.headers["NServiceBus.FailedQ"] == shop.address
    assert error.headers["NServiceBus.ExceptionInfo.Message"] == "no such order: 42"


def header_set(error):
    return [name.removeprefix("NServiceBus.") for name, value in error.headers.items() if value]


@pytest.mark.promise("default-retries")
def test_each_delay_is_longer_than_the_one_before(shop):
    send(shop)

    with run(shop, "defaults") as supervisor:
        in_error_queue(shop, supervisor)

    rounds = by_row(calls(shop))
    pauses = [later[0] - earlier[-1] for earlier, later in pairwise(rounds)]
    assert all(pause >= 0.05 * (number + 1) for number, pause in enumerate(pauses)), pauses
    assert len(pauses) == 3


def by_row(seen):
    """Times of the calls, by the row that they were for."""
    rounds = {}
    for row, at in seen:
        rounds.setdefault(row, []).append(at)
    return list(rounds.values())


@pytest.mark.promise("error-copy-keeps-message")
def test_the_error_row_keeps_the_message_and_drops_the_headers_that_count_retries(shop):
    send(shop, b"\x00\xffbody", time_to_be_received=timedelta(hours=1))

    with run(shop, "two_by_two") as supervisor:
        (error,) = supervisor.until(shop.errors, "in the error queue")

    kept = set(HEADERS) - {"NServiceBus.FLRetries", "NServiceBus.FailedQ"}
    assert {name: error.headers.get(name) for name in kept} == {name: HEADERS[name] for name in kept}
    assert "Shop.Null" in error.headers
    assert not {"NServiceBus.Retries", "NServiceBus.FLRetries"} & set(error.headers)
    assert parse_timestamp(error.headers["NServiceBus.Retries.Timestamp"])
    assert (error.body, error.expires) == (b"\x00\xffbody", None)


@pytest.mark.promise("handlers-header-changes")
def test_header_changes_of_a_failing_handler_reach_neither_a_retry_nor_the_error_queue(shop):
    send(shop)

    with run(shop, "two_by_two") as supervisor:
        (error,) = in_error_queue(shop, supervisor)

    assert len(calls(shop)) == 4
    assert "Added.ByHandler" not in error.headers


@pytest.mark.promise("handlers-header-changes")
def test_a_delayed_retry_has_the_headers_of_the_message(shop, database):
    send(shop)
    pipeline = Pipeline(
        database, shop.name, recovery.endpoint(_raise, recoverability=Recoverability(0, 1, timedelta(hours=1)))
    )

    outcome = pipeline.process_one()

    (raw,) = [row[0] for row in shop.sql.run(f"SELECT headers FROM {shop.sql.table(shop.name + '.Delayed')}")]
    assert outcome.kind is Kind.DELAYED
    assert "Added.ByHandler" not in raw
    assert '"NServiceBus.Retries":"1"' in raw


def _raise(body, context):
    context.incoming.headers["Added.ByHandler"] = "must not be seen"
    context.incoming.headers["NServiceBus.Retries"] = "99"
    raise ValueError("no")


@pytest.mark.promise("immediate-counter-restarts")
def test_after_a_delayed_retry_the_immediate_counter_starts_at_1(shop):
    send(shop)

    with run(shop, "two_by_two") as supervisor:
        in_error_queue(shop, supervisor)

    assert [event.attempts for event in supervisor.seen(events.Failed)] == [1, 2, 1, 2]
    assert [len(times) for times in by_row(calls(shop))] == [2, 2]


def test_the_figures_tell_what_was_repeated_at_once_and_what_later(shop):
    send(shop)

    with run(shop, "two_by_two") as supervisor:
        in_error_queue(shop, supervisor)
        figures = supervisor.supervisor.snapshot().queue(shop.name)

    assert (figures.failed, figures.delayed, figures.moved_to_error, figures.handled) == (2, 1, 1, 0)


@pytest.mark.promise("none-means-one-call")
def test_in_the_mode_none_there_is_one_call_and_then_the_error_queue(shop):
    send(shop)

    with run(shop, "none_mode") as supervisor:
        in_error_queue(shop, supervisor)

    assert len(calls(shop)) == 1


@pytest.mark.parametrize("body", [b"{", b"[1, 2]", b"\xff\xfe\x00"])
@pytest.mark.promise("unreadable-body-fails-at-once")
def test_a_body_that_does_not_parse_goes_to_the_error_queue_at_once(shop, body):
    send(shop, body)

    with run(shop, "typed") as supervisor:
        (error,) = in_error_queue(shop, supervisor)

    assert [event.attempts for event in supervisor.seen(events.Failed)] == [1]
    assert error.headers["NServiceBus.ExceptionInfo.ExceptionType"] == "rowpost.errors.MessageNotDeserialized"
    assert error.body == body


def test_a_type_that_nobody_handles_goes_to_the_error_queue_at_once(shop):
    send(shop, headers={"NServiceBus.EnclosedMessageTypes": "Shop.Unknown"})

    with run(shop, "typed") as supervisor:
        in_error_queue(shop, supervisor)

    assert [event.attempts for event in supervisor.seen(events.Failed)] == [1]


def test_an_unrecoverable_exception_goes_to_the_error_queue_at_once(shop):
    send(shop)

    with run(shop, "hopeless") as supervisor:
        in_error_queue(shop, supervisor)

    assert len(calls(shop)) == 1


def test_a_custom_policy_decides_by_the_error(shop):
    send(shop, b"key")
    send(shop, b"value")

    with run(shop, "by_policy") as supervisor:
        in_error_queue(shop, supervisor, 2)

    assert len(calls(shop)) == 4
    assert len(supervisor.seen(events.Delayed)) == 2


@pytest.mark.promise("failing-recoverability")
def test_a_policy_that_raises_is_critical_and_the_message_is_retried(shop):
    row = send(shop)

    with run(shop, "broken_policy", breaker=FAST) as supervisor:
        in_error_queue(shop, supervisor)

    (critical,) = supervisor.seen(events.Critical)
    assert f"Failed to execute recoverability policy for message with native ID: `{row}`" in critical.error
    assert "the policy is broken" in critical.error
    assert len(calls(shop)) == 2


def test_a_policy_that_answers_nonsense_is_critical_too(shop, database):
    send(shop)
    endpoint = recovery.endpoint(_raise, recoverability=Recoverability(policy=lambda failure: "later"))

    outcome = Pipeline(database, shop.name, endpoint).process_one()

    assert outcome.kind is Kind.UNMOVABLE
    assert shop.depth() == 1


def test_attempts_survive_a_restart_and_are_shared_by_instances(shop, database):
    send(shop)
    pipeline = Pipeline(database, shop.name, recovery.no_delays)

    before = [pipeline.process_one().attempts for _ in range(2)]
    with run(shop, "no_delays") as supervisor:
        in_error_queue(shop, supervisor)

    assert before == [1, 2]
    assert [event.attempts for event in supervisor.seen(events.Failed)] == [3]


def test_a_delayed_retry_without_a_delayed_table_ends_in_the_error_queue(shop, database):
    queue = shop.make_queue(delayed=False)
    queue.send(b"42", HEADERS)
    endpoint = recovery.endpoint(_raise, recoverability=Recoverability(0, 3))

    outcome = Pipeline(database, queue.name, endpoint).process_one()

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert (queue.peek(), len(shop.errors())) == (0, 1)


@pytest.mark.parametrize("delay", [timedelta(days=-1), timedelta(0), timedelta(days=100)])
def test_a_policy_may_name_any_delay(shop, database, delay):
    send(shop)
    endpoint = recovery.endpoint(_raise, recoverability=Recoverability(policy=lambda failure: delay))

    outcome = Pipeline(database, shop.name, endpoint).process_one()

    assert outcome.kind is Kind.DELAYED


# ------------------------------------------------------------------ handlers that hang or kill
def test_a_handler_that_hangs_is_killed_at_its_time_limit_and_that_counts_as_an_attempt(shop):
    send(shop, b"bad")
    send(shop, b"good")

    with run(shop, "hanging") as supervisor:
        (error,) = in_error_queue(shop, supervisor)
        supervisor.until(lambda: ("done",) in bodies(shop), "the other one is handled")

    assert error.body == b"bad"
    assert error.headers["NServiceBus.ExceptionInfo.ExceptionType"] == "builtins.TimeoutError"
    assert "0.3 s" in error.headers["NServiceBus.ExceptionInfo.Message"]
    assert [event.attempts for event in supervisor.seen(events.Failed)] == [1, 2]
    assert len(supervisor.seen(events.TimedOut)) == 2
    assert "time limit" in {event.reason for event in supervisor.seen(events.WorkerStopped)}
    assert supervisor.seen(events.WorkerDied) == []


def bodies(shop):
    return [(bytes(row[0]).decode(),) for row in shop.sql.run("SELECT body FROM handled")]


def test_a_plain_functions_time_limit_stands_in_the_settings(shop):
    shop.queue.send(b"30")

    with shop.run("slow", limit=1, time_limit=0.2, attempts=2) as supervisor:
        (error,) = in_error_queue(shop, supervisor)

    assert error.headers["NServiceBus.ExceptionInfo.ExceptionType"] == "builtins.TimeoutError"
    assert shop.handled() == 0


def test_handlers_within_their_time_limit_are_left_alone(shop):
    for _ in range(20):
        shop.queue.send(b"0.05")

    with shop.run("slow", limit=2, time_limit=0.5) as supervisor:
        supervisor.until(lambda: shop.handled() == 20, "all are handled")
        supervisor.idle()

    assert supervisor.seen(events.TimedOut) == []


def test_a_handler_that_kills_its_process_ends_in_the_error_queue_after_its_attempts(shop):
    send(shop, b"bad")
    send(shop, b"good")

    with run(shop, "dying") as supervisor:
        (error,) = in_error_queue(shop, supervisor)
        supervisor.until(lambda: ("done",) in bodies(shop), "the other one is handled")

    assert error.body == b"bad"
    assert "signal 9" in error.headers["NServiceBus.ExceptionInfo.Message"]
    assert error.headers["Shop.Unknown"] == HEADERS["Shop.Unknown"]
    assert len(supervisor.seen(events.WorkerDied)) == 2


def test_a_message_that_kills_workers_is_tried_again_later_where_the_endpoint_says_so(shop):
    send(shop, b"bad")

    with run(shop, "dying_later") as supervisor:
        in_error_queue(shop, supervisor)

    assert len(supervisor.seen(events.Delayed)) == 1
    assert [len(times) for times in by_row(calls(shop))] == [1, 1]


def test_several_workers_and_one_message_that_kills_them(shop):
    send(shop, b"bad")
    for _ in range(30):
        send(shop, b"good")

    with run(shop, "dying", limit=3) as supervisor:
        in_error_queue(shop, supervisor)
        supervisor.until(lambda: bodies(shop).count(("done",)) == 30, "all others are handled")


def test_a_handler_that_leaves_as_if_all_was_well_has_failed_too(shop):
    send(shop)

    with run(shop, "leaving") as supervisor:
        (error,) = in_error_queue(shop, supervisor)

    assert "exit code 0" in error.headers["NServiceBus.ExceptionInfo.Message"]


def test_a_handler_that_exhausts_memory_ends_in_the_error_queue(shop):
    send(shop)

    with run(shop, "exhausting") as supervisor:
        in_error_queue(shop, supervisor)

    assert shop.depth() == 0


# ------------------------------------------------------------------ plain functions
@pytest.mark.promise("functions-delayed-retries")
@pytest.mark.parametrize("handler", ["fail", "exit_process"])
def test_a_plain_function_has_delayed_retries_too_if_its_worker_says_so(shop, handler):
    shop.queue.send(b"42")

    with shop.run(
        handler,
        limit=1,
        attempts=2,
        delayed_retries=2,
        delay_increase=0.05,
        backoff="exponential",
        delayed_lateness=0.05,
    ) as supervisor:
        (error,) = in_error_queue(shop, supervisor)

    kinds = [type(each) for each in supervisor.events if isinstance(each, events.Failed)]
    assert kinds == [events.Failed, events.Delayed] * 2 + [events.Failed, events.MovedToError]
    assert "NServiceBus.Retries" not in error.headers
    assert error.headers["NServiceBus.FailedQ"] == shop.address
    assert shop.depth() == 0


# ------------------------------------------------------------------ the consecutive-failures rate limit
def test_i7_after_many_failures_in_a_row_one_worker_tries_and_waits_until_one_succeeds(shop, tmp_path):
    gate = tmp_path / "gate"
    for _ in range(12):
        send(shop, str(gate).encode())

    with run(shop, "flaky", limit=3, throttle_after=10, throttle_wait=0.4) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.ThrottlingStarted), "throttling")
        supervisor.until(lambda: supervisor.workers(shop.name) == 1, "one worker")
        before = len(calls(shop))
        began = time.monotonic()
        supervisor.until(lambda: len(calls(shop)) >= before + 4, "some more attempts")
        took = time.monotonic() - began
        throttled = supervisor.supervisor.snapshot().queue(shop.name).throttled
        gate.touch()
        supervisor.until(lambda: supervisor.seen(events.ThrottlingEnded), "the end of it")
        supervisor.idle()

    (started,) = supervisor.seen(events.ThrottlingStarted)
    assert (started.failures >= 10, started.wait) == (True, 0.4)
    assert throttled
    assert took > 3 * 0.4 * 0.8
    assert len(supervisor.seen(events.ThrottlingEnded)) == 1
    assert shop.depth() == 0


def test_i7_failures_that_a_policy_discards_are_failures_in_a_row_too(shop):
    for _ in range(8):
        send(shop)

    with run(shop, "giving_up", throttle_after=5, throttle_wait=0.1) as supervisor:
        supervisor.until(lambda: len(supervisor.seen(events.Discarded)) == 8, "all are discarded")

    assert len(supervisor.seen(events.ThrottlingStarted)) == 1
    assert supervisor.seen(events.ThrottlingEnded) == []
    assert (shop.depth(), shop.errors()) == (0, [])


def test_i7_without_the_setting_failures_in_a_row_change_nothing(shop):
    for _ in range(10):
        send(shop)

    with run(shop, "no_delays", limit=2) as supervisor:
        in_error_queue(shop, supervisor, 10)

    assert supervisor.seen(events.ThrottlingStarted) == []
