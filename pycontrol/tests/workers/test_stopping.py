"""Handlers and policies of a process that stops: they see it, and are interrupted if they do not end."""

import pytest

from rowpost.endpoint.endpoint import MODES
from rowpost.pipeline.batch_size import batch_size
from rowpost.pipeline.batches import Batches
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Decision, Failure, Recoverability
from rowpost.recoverability.stopping import FORCED, REQUESTED, STOP, HandlerInterrupted
from rowpost.workers import events
from tests.support.crashing import TYPE, endpoint_of, pipeline_of
from tests.support.outboxes import endpoint_of as endpoint_with_outbox
from tests.support.outboxes import pipeline_of as pipeline_with_outbox
from tests.support.workers import running

ORDER = {"NServiceBus.EnclosedMessageTypes": TYPE}
BODY = b'{"Number":1}'


@pytest.fixture
def stop(monkeypatch):
    """The stop of this process, which is not requested; it is forgotten after the test."""
    monkeypatch.setattr(STOP.process, "memory", bytearray(1))
    return STOP.process


@pytest.fixture
def force(stop):
    """What a supervisor and a signal handler do for a stop by force. It also counts its calls."""
    calls = []

    def interrupt(*_):
        calls.append(None)
        stop.request(FORCED)
        stop.interrupt()

    interrupt.calls = calls
    return interrupt


@pytest.fixture
def tables(queue, sql):
    """The table `business`, and Billing, error and the counts of failures, empty."""
    sql.run("DROP TABLE IF EXISTS business")
    sql.run("CREATE TABLE business (number integer NOT NULL)")
    sql.run("DELETE FROM rowpost.failure")
    for name in ("Billing", "error"):
        sql.empty(name)
    return lambda: (queue.peek(10), sql.value("SELECT COUNT(*) FROM business"), failures(sql))


def failures(sql):
    return sql.value("SELECT COUNT(*) FROM rowpost.failure")


# ------------------------------------------------------------------ in worker processes
def test_a_handler_that_sees_the_stop_ends_early_and_its_message_is_handled(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.queue.send(str(gate).encode(), {"NServiceBus.EnclosedMessageTypes": "Shop.Wait"})

    with shop.run("loop", limit=1) as supervisor:
        supervisor.until(lambda: running(gate) == 1, "the handler")
        supervisor.supervisor.stop()
        supervisor.ended()

    assert (shop.handled(), shop.depth(), shop.errors()) == (1, 0, [])
    assert {event.reason for event in supervisor.seen(events.WorkerStopped)} == {"stop"}


@pytest.mark.promise("stop")
def test_a_stop_by_force_ends_the_handler_with_its_cleanup_and_counts_no_attempt(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(1, str(gate).encode())

    with shop.run("clean_up", limit=1) as supervisor:
        supervisor.until(lambda: running(gate) == 1, "the handler")
        supervisor.supervisor.stop()
        supervisor.supervisor.stop()
        supervisor.ended()

    supervisor.until(lambda: shop.depth() == 1, "the message is back")
    assert (tmp_path / "gate-cleaned").exists()
    assert (shop.handled(), failures(shop.sql)) == (0, 0)
    assert {event.reason for event in supervisor.seen(events.WorkerStopped)} == {"interrupted"}
    assert supervisor.seen(events.Failed) == supervisor.seen(events.WorkerDied) == []


def test_a_handler_is_interrupted_while_it_waits_for_a_statement(shop, tmp_path):
    if shop.queue.database.engine != "postgresql":
        pytest.skip("pyodbc returns to Python only when its statement has ended")
    gate = tmp_path / "gate"
    shop.send(1, str(gate).encode())

    with shop.run("sleep_in_database", limit=1) as supervisor:
        supervisor.until(lambda: running(gate) == 1, "the handler")
        supervisor.supervisor.stop()
        supervisor.supervisor.stop()
        supervisor.ended()

    supervisor.until(lambda: shop.depth() == 1, "the message is back")
    assert failures(shop.sql) == 0
    assert {event.reason for event in supervisor.seen(events.WorkerStopped)} == {"interrupted"}


@pytest.mark.promise("stop")
def test_a_handler_that_resists_its_interruption_is_killed(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(1, str(gate).encode())

    with shop.run("resist", limit=1, stop_timeout=0.1) as supervisor:
        supervisor.until(lambda: running(gate) == 1, "the handler")
        supervisor.supervisor.stop()
        supervisor.until((tmp_path / "gate-resisted").exists, "the handler is interrupted")
        supervisor.ended()

    supervisor.until(lambda: shop.depth() == 1, "the message is back")
    assert failures(shop.sql) == 0
    assert {event.reason for event in supervisor.seen(events.WorkerStopped)} == {"killed"}


# ------------------------------------------------------------------ what is rolled back
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "none"])
def test_the_message_of_an_interrupted_handler_is_back_and_no_attempt_is_counted(queue, database, tables, force, mode):
    queue.send(BODY, ORDER)
    pipeline = pipeline_of(database, endpoint_of("Sales", mode, {}, then=force))

    with pytest.raises(HandlerInterrupted):
        pipeline.process_one()

    assert not database.in_transaction
    assert tables() == (1, 0, 0)


def test_an_interrupted_handler_of_an_outbox_leaves_nothing_in_either_database(
    queue, open_database, tables, force, business_url, sql
):
    queue.send(BODY, {**ORDER, "NServiceBus.MessageId": "interrupted"})
    pipeline = pipeline_with_outbox(open_database(), endpoint_with_outbox("Sales", business_url, then=force))

    with pytest.raises(HandlerInterrupted):
        pipeline.process_one()
    pipeline.close()

    assert (queue.peek(10), failures(sql)) == (1, 0)


def test_an_interrupted_handler_of_the_mode_none_fails_so_that_its_message_is_kept(queue, database, tables, force, sql):
    queue.send(BODY, ORDER)
    pipeline = pipeline_of(database, endpoint_of("Sales", "none", {}, then=force))

    outcome = pipeline.process_one()

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert outcome.error.startswith("HandlerInterrupted")
    assert sql.value("SELECT COUNT(*) FROM error") == 1


def test_an_interrupted_handler_returns_all_messages_of_its_transaction(queue, database, tables, stop, force):
    for _ in range(3):
        queue.send(BODY, ORDER)
    seen = []

    def then(context):
        seen.append(context.message_id)
        if len(seen) == 2:
            force()

    pipeline = pipeline_of(database, endpoint_of("Sales", "sends_atomic_with_receive", {}, then=then))

    with pytest.raises(HandlerInterrupted):
        Batches(pipeline, batch_size(10, 1.0)).process()

    assert tables() == (3, 0, 0)


def test_no_handler_starts_after_a_stop_by_force(queue, database, tables, stop):
    queue.send(BODY, ORDER)
    called = []
    pipeline = pipeline_of(
        database, endpoint_of("Sales", "sends_atomic_with_receive", {}, then=lambda context: called.append(1))
    )
    stop.request(FORCED)

    with pytest.raises(HandlerInterrupted):
        pipeline.process_one()

    assert called == []
    assert tables() == (1, 0, 0)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_but_a_handler_is_interrupted(queue, database, tables, force, mode):
    queue.send(BODY, ORDER)
    others = {"before commit", "committed", "sent"}
    pipeline = pipeline_of(
        database, endpoint_of("Sales", mode, {}), step=lambda name: force() if name in others else None
    )

    outcome = pipeline.process_one()

    assert force.calls
    assert outcome.kind is Kind.HANDLED
    assert tables() == (0, 1, 0)


# ------------------------------------------------------------------ policies
def test_a_policy_is_interrupted_and_its_message_is_back(queue, database, tables, force, sql):
    queue.send(b"no json", ORDER)
    endpoint = endpoint_of("Sales", "sends_atomic_with_receive", {})
    endpoint.recoverability = Recoverability(policy=force)
    pipeline = pipeline_of(database, endpoint)

    with pytest.raises(HandlerInterrupted):
        pipeline.process_one()

    assert not database.in_transaction
    assert (queue.peek(10), sql.value("SELECT COUNT(*) FROM error")) == (1, 0)


def test_a_policy_sees_the_stop_and_its_decision_is_carried_out(queue, database, tables, stop, sql):
    queue.send(b"no json", ORDER)
    seen = []

    def policy(failure):
        before = failure.stopping
        stop.request(REQUESTED)
        seen.append((before, failure.stopping))
        return Decision.ERROR

    endpoint = endpoint_of("Sales", "sends_atomic_with_receive", {})
    endpoint.recoverability = Recoverability(policy=policy)

    outcome = pipeline_of(database, endpoint).process_one()

    assert seen == [(False, True)]
    assert outcome.kind is Kind.MOVED_TO_ERROR


def test_a_failure_outside_of_a_worker_says_that_nothing_stops(stop):
    assert not Failure(ValueError(), 1, 0, {}).stopping
