"""A handler that stops the other handlers of a message, and handlers of all types."""

import logging
from dataclasses import dataclass

import pytest

from rowpost.endpoint.endpoint import MODES, Endpoint
from rowpost.errors import SettingsError
from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.batches import Batches
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.sagas import Saga, starts
from rowpost.transport.queue import Queue
from rowpost.wire.message_types import message_type
from tests.support.pipelines import pipeline_with
from tests.support.sagas import deploy

TYPES = "NServiceBus.EnclosedMessageTypes"


@message_type("Stop.Start")
@dataclass(frozen=True)
class Start:
    number: int


@message_type("Stop.Vip")
@dataclass(frozen=True)
class StartOfVip(Start):
    points: int = 0


@dataclass
class State:
    number: int


@pytest.fixture
def seen():
    return []


@pytest.fixture
def work(database, queue, sql, open_database):
    """Handle one message of type Stop.Start with an endpoint, and return what became of it."""
    made = []
    for name in ("error", "audit", "Billing"):
        sql.empty(name)

    def handle(endpoint, types="Stop.Start"):
        queue.send(b'{"Number":1}', {TYPES: types})
        connection = open_database()
        made.append(pipeline_with(connection, "Sales", endpoint, reconnect=connection.open_second))
        return made[-1].process_one()

    yield handle
    for pipeline in made:
        pipeline.close()


def sales_of(**options):
    return Endpoint("Sales", recoverability=Recoverability(0, 0), **options)


def saga_that(started, act=lambda context: None):
    class Policy(Saga[State], correlate={Start: "number"}, table="Sales_Stopped"):
        @starts(Start)
        def start(self, message, context):
            started.append("saga")
            act(context)
            self.complete()

    return Policy


# ------------------------------------------------------------------ stop_handlers
@pytest.mark.parametrize("mode", MODES)
def test_a_handler_stops_the_handlers_after_it_and_the_message_is_handled(work, database, seen, caplog, mode):
    sales = sales_of(transaction_mode=mode, audit_queue="audit")

    @sales.handles("Stop.Start", Start)
    def first(message, context):
        context.send(Start(2), to="Billing")

    @sales.handles("Stop.Start", Start)
    def second(message, context):
        context.stop_handlers()
        context.send(Start(3), to="Billing")

    sales.handles("Stop.Start", Start)(lambda message, context: seen.append(message))
    with caplog.at_level(logging.INFO, "rowpost"):
        outcome = work(sales)

    assert (outcome.kind, seen) == (Kind.HANDLED, [])
    assert [each.body for each in Queue("Billing", database).browse()] == [b'{"Number":2}', b'{"Number":3}']
    assert Queue("audit", database).peek() == 1
    assert "second of Sales stopped the handlers of message" in caplog.text


def test_a_stop_keeps_the_message_from_the_sagas(work, target, seen):
    sales = sales_of()
    sales.handles("Stop.Start", Start)(lambda message, context: context.stop_handlers())
    sales.saga(saga_that(seen))
    deploy(target, sales)

    assert work(sales).kind is Kind.HANDLED
    assert seen == []


def test_a_saga_stops_the_handlers_after_it(work, target, seen):
    sales = sales_of()
    sales.saga(saga_that(seen, lambda context: context.stop_handlers()))
    sales.handles("Stop.Start", Start)(lambda message, context: seen.append("handler"))
    deploy(target, sales)

    assert work(sales).kind is Kind.HANDLED
    assert seen == ["saga"]


def test_a_stop_ends_with_its_message(queue, database, seen):
    sales = sales_of()
    sales.handles("Stop.Start", Start)(lambda message, context: message.number == 1 and context.stop_handlers())
    sales.handles("Stop.Start", Start)(lambda message, context: seen.append(message.number))
    for number in (1, 2):
        queue.send(b'{"Number":%d}' % number, {TYPES: "Stop.Start"})

    outcomes = Batches(pipeline_with(database, "Sales", sales), BatchSize(2, None, now=2)).process()

    assert [each.kind for each in outcomes] == [Kind.HANDLED, Kind.HANDLED]
    assert seen == [2]


def test_a_handler_that_stops_and_discards_discards_the_message(work, seen):
    sales = sales_of()

    @sales.handles("Stop.Start", Start)
    def refuse(message, context):
        context.discard("nobody may start now")
        context.stop_handlers()

    sales.handles("Stop.Start", Start)(lambda message, context: seen.append(message))
    outcome = work(sales)

    assert (outcome.kind, outcome.discard.reason, seen) == (Kind.DISCARDED, "nobody may start now", [])


def test_a_stop_in_a_failed_attempt_does_not_outlive_it(queue, database, sql, seen):
    sql.empty("error")
    sales = Endpoint("Sales", recoverability=Recoverability(1, 0))

    @sales.handles("Stop.Start", Start)
    def fail_once(message, context):
        seen.append("first")
        if seen == ["first"]:
            context.stop_handlers()
            raise ValueError("once")

    sales.handles("Stop.Start", Start)(lambda message, context: seen.append("second"))
    queue.send(b'{"Number":1}', {TYPES: "Stop.Start"})
    kinds = [sales.process_one(database).kind for _ in range(2)]

    assert (kinds, seen) == ([Kind.FAILED, Kind.HANDLED], ["first", "first", "second"])


# ------------------------------------------------------------------ handles_everything
def test_a_handler_of_everything_gets_each_message_as_its_class_and_what_has_none_as_bytes(work, seen):
    sales = sales_of()
    sales.handles_everything(lambda message, context: seen.append(message))

    for types in ("Stop.Start", "Stop.Vip;Stop.Start", "Unknown.Type", "", "Unknown.Derived;Stop.Start"):
        assert work(sales, types).kind is Kind.HANDLED

    assert seen == [Start(1), StartOfVip(1), b'{"Number":1}', b'{"Number":1}', Start(1)]


def test_handlers_of_everything_run_in_their_order_among_the_others(work, target, seen):
    sales = sales_of()
    sales.handles_everything(lambda message, context: seen.append("before"))
    sales.saga(saga_that(seen))
    sales.handles("Stop.Start", Start)(lambda message, context: seen.append("own"))
    sales.handles_everything(lambda message, context: seen.append("after"))
    deploy(target, sales)

    assert work(sales).kind is Kind.HANDLED
    assert seen == ["before", "saga", "own", "after"]


def test_a_handler_of_everything_stops_the_others_for_what_it_has_no_use(work, seen):
    sales = sales_of()
    sales.handles_everything(lambda message, context: message.number == 1 and context.stop_handlers())
    sales.handles("Stop.Start", Start)(lambda message, context: seen.append(message))

    assert work(sales).kind is Kind.HANDLED
    assert seen == []


def test_a_handler_of_everything_gets_no_control_message_and_subscribes_to_nothing(database, queue, seen):
    sales = sales_of()
    sales.handles_everything(lambda message, context: seen.append(message))
    queue.send(b"", {"NServiceBus.ControlMessage": "True", "NServiceBus.MessageIntent": "Send"})

    assert sales.process_one(database).kind is Kind.DISCARDED
    assert (seen, sales.subscriptions) == ([], ())


def test_what_failed_in_a_handler_of_everything_names_the_type_of_the_message(work, database):
    sales = sales_of()

    @sales.handles_everything
    def fail(message, context):
        raise ValueError("no")

    work(sales, "Stop.Vip;Stop.Start")

    (failed,) = Queue("error", database).browse()
    assert failed.headers["NServiceBus.ExceptionInfo.Data.Message type"] == "Stop.Vip"
    assert failed.headers["NServiceBus.ExceptionInfo.Data.Handler type"].endswith("fail")


def test_types_that_are_not_audited_stay_so_where_everything_is_handled(work, database, seen):
    sales = sales_of(audit_queue="audit", not_audited=["Stop.Start"])
    sales.handles_everything(lambda message, context: seen.append(message))

    for types in ("Stop.Start", "Unknown.Type"):
        work(sales, types)

    assert [each.headers[TYPES] for each in Queue("audit", database).browse()] == ["Unknown.Type"]


def test_a_function_that_cannot_handle_a_message_is_refused():
    with pytest.raises(SettingsError, match="is called with 2 arguments"):
        sales_of().handles_everything(lambda message: None)
