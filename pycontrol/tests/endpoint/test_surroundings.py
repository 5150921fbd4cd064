"""What surrounds handlers: functions around them and around sends, what they share in a process, and hooks."""

import asyncio
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.provisioning import prepare
from rowpost.errors import InvalidMessage, SettingsError, StartFailed
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.sagas import Saga, SagaContext, starts
from rowpost.sagas.context import AsyncSagaContext
from rowpost.testing import temporary_database
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address
from rowpost.workers.protocol import Assignment
from rowpost.workers.worker.hosted import host
from tests.support.orders import Charge, Order

ONCE = Recoverability(immediate_retries=0, delayed_retries=0)


class Client:
    """What a handler calls something with."""

    def __init__(self):
        self.closed = False


class Clock:
    pass


@pytest.fixture
def sales(database, queue, sql):
    sql.run("DELETE FROM rowpost.failure")
    for name in ("Billing", "error"):
        sql.empty(name)
    made = Endpoint("Sales", recoverability=ONCE)
    made.seen = []

    def handled(count=1):
        with made.open(database) as bus:
            for number in range(count):
                bus.send(Order(number), to="Sales")
        pipeline = made.pipeline(database, "Sales")
        return [pipeline.process_one() for _ in range(count)]

    made.handled = handled
    yield made
    made.close()


# ------------------------------------------------------------------ declaring
def test_a_class_names_its_type_and_the_function_stays_as_it_is(sales):
    def handle(message: Order, context) -> None:
        sales.seen.append(message)

    assert sales.handles(Order)(handle) is handle
    assert [outcome.kind for outcome in sales.handled(2)] == [Kind.HANDLED] * 2
    assert sales.seen == [Order(0), Order(1)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((dict,), "no name that a receiver can know"),
        ((bytes,), "Bytes have no class"),
        ((Order, Order), "takes a message class alone"),
        ((7,), "takes a message class alone"),
    ],
)
def test_what_is_no_message_class_is_refused(arguments, words):
    with pytest.raises(SettingsError, match=words):
        Endpoint("Sales").handles(*arguments)


# ------------------------------------------------------------------ around
@pytest.mark.promise("around-is-in-the-transaction")
def test_functions_surround_plain_handlers_the_first_one_outermost(sales, database):
    @sales.around
    def outer(message, context, proceed):
        sales.seen.append(("outer", message.number, context.message_id == context.headers["NServiceBus.MessageId"]))
        context.send(Charge(1), to="Billing")
        return proceed()

    @sales.handles(Order)
    def handle(message, context):
        sales.seen.append("handler")

    @sales.around
    def inner(message, context, proceed):
        try:
            return proceed()
        finally:
            sales.seen.append("inner")

    assert sales.handled()[0].kind is Kind.HANDLED
    assert sales.seen == [("outer", 0, True), "handler", "inner"]
    assert Queue("Billing", database).peek(10) == 1


def test_functions_surround_async_handlers(sales):
    @sales.around
    async def bound(message, context, proceed):
        sales.seen.append("before")
        await asyncio.sleep(0)
        await proceed()
        sales.seen.append("after")

    @sales.handles(Order)
    async def handle(message, context):
        await asyncio.sleep(0)
        sales.seen.append("handler")

    assert sales.handled()[0].kind is Kind.HANDLED
    assert sales.seen == ["before", "handler", "after"]


@pytest.mark.promise("around-is-in-the-transaction")
def test_an_error_around_a_handler_fails_the_attempt_and_one_of_the_handler_can_be_caught(sales, database):
    @sales.around
    def translate(message, context, proceed):
        context.send(Charge(1), to="Billing")
        try:
            proceed()
        except KeyError as error:
            raise ValueError("translated") from error

    @sales.handles(Order)
    def handle(message, context):
        raise KeyError("no")

    (outcome,) = sales.handled()

    assert "ValueError: translated" in outcome.error
    assert Queue("Billing", database).peek(10) == 0


def test_a_function_that_does_not_proceed_handles_the_message_itself(sales):
    @sales.around
    def skip(message, context, proceed):
        context.discard("not on Sundays")

    @sales.handles(Order)
    def handle(message, context):
        sales.seen.append("handler")

    assert sales.handled()[0].kind is Kind.DISCARDED
    assert sales.seen == []


def test_a_handler_that_no_function_of_its_kind_surrounds_is_refused(sales):
    @sales.around
    async def bound(message, context, proceed):
        await proceed()

    @sales.handles(Order)
    def handle(message, context): ...

    with pytest.raises(SettingsError, match=r"handle of Sales is a plain function.*as a plain function"):
        sales.handled()


def test_a_function_around_handlers_takes_three_arguments(sales):
    with pytest.raises(SettingsError, match=r"def two\(message, context, proceed\)"):

        @sales.around
        def two(message, context): ...


# ------------------------------------------------------------------ resources
def test_a_resource_is_made_once_at_its_first_use_and_ends_with_the_endpoint(sales):
    @sales.provides(Client)
    def client():
        made = Client()
        sales.seen.append("made")
        yield made
        made.closed = True
        sales.seen.append("ended")

    @sales.handles(Order)
    def handle(message: Order, context, client: Client):
        sales.seen.append(client)

    assert sales.seen == []
    assert [outcome.kind for outcome in sales.handled(3)] == [Kind.HANDLED] * 3
    sales.close()

    first, *used, last = sales.seen
    assert (first, last, len(set(used)), used[0].closed) == ("made", "ended", 1, True)


def test_an_async_resource_lives_on_the_event_loop_of_its_handlers(sales):
    @sales.provides(Client)
    async def client():
        loop, made = asyncio.get_running_loop(), Client()
        made.loop = loop
        yield made
        assert asyncio.get_running_loop() is loop
        sales.seen.append("ended")

    @sales.provides(Clock)
    async def clock():
        await asyncio.sleep(0)
        return Clock()

    @sales.handles(Order)
    async def handle(message, context, *, client: Client, clock: Clock):
        assert client.loop is asyncio.get_running_loop()
        sales.seen.append(type(clock))

    @sales.handles(Order)
    def plain(message, context, client: Client):
        sales.seen.append(type(client))

    assert sales.handled()[0].kind is Kind.HANDLED
    sales.close()

    assert sales.seen == [Clock, Client, "ended"]


def test_a_resource_that_cannot_be_made_fails_the_attempt_and_is_tried_again(sales):
    failures = [OSError("no network")]

    @sales.provides(Client)
    def client():
        if failures:
            raise failures.pop()
        yield Client()

    @sales.handles(Order)
    def handle(message, context, client: Client): ...

    first, second = sales.handled(2)

    assert "OSError: no network" in first.error
    assert second.kind is Kind.HANDLED


def test_resources_end_in_reverse_and_an_error_of_one_keeps_no_other(sales, caplog):
    @sales.provides(Client)
    def client():
        yield Client()
        sales.seen.append("client")

    @sales.provides(Clock)
    def clock():
        yield Clock()
        sales.seen.append("clock")
        raise ValueError("broken")

    @sales.handles(Order)
    def handle(message, context, client: Client, clock: Clock): ...

    assert sales.handled()[0].kind is Kind.HANDLED
    sales.close()

    assert sales.seen == ["clock", "client"]
    assert "The resource Clock of Sales did not end properly" in caplog.text


def test_threads_share_a_resource(sales):
    made = []

    @sales.provides(Client)
    def client():
        made.append(Client())
        yield made[-1]

    resources = sales.surroundings.resources
    threads = [threading.Thread(target=resources.get, args=({"client": Client},)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(made) == 1


def test_what_nothing_provides_is_refused_before_a_message_is_received(sales):
    @sales.handles(Order)
    def handle(message, context, client: Client): ...

    with pytest.raises(SettingsError, match=r"asks for client: Client, and nothing provides it.*provides\(Client\)"):
        sales.handled()


def test_wrong_providers_are_refused(sales):
    with pytest.raises(SettingsError, match="takes a class"):
        sales.provides("Client")(lambda: None)
    with pytest.raises(SettingsError, match="takes arguments"):
        sales.provides(Client)(lambda url: None)
    sales.provides(Client)(Client)
    with pytest.raises(SettingsError, match="two providers"):
        sales.provides(Client)(Client)
    with pytest.raises(SettingsError, match=r"called with 2 arguments"):

        @sales.handles(Order)
        def handle(message, context, number): ...


def test_the_end_of_a_worker_ends_its_resources_and_a_missing_one_refuses_its_handler(sales, target, monkeypatch):
    @sales.provides(Client)
    def client():
        yield Client()
        sales.seen.append("ended")

    @sales.handles(Order)
    def handle(message, context, client: Client): ...

    monkeypatch.setitem(sys.modules, "surrounded", SimpleNamespace(endpoint=sales))
    hosted = host(Assignment(target.settings, "Sales", "surrounded:endpoint"))
    assert sales.handled()[0].kind is Kind.HANDLED
    hosted.close()
    assert sales.seen == ["ended"]

    @sales.handles(Charge)
    def charge(message, context, clock: Clock): ...

    with pytest.raises(SettingsError, match="asks for clock: Clock"):
        host(Assignment(target.settings, "Sales", "surrounded:endpoint"))


# ------------------------------------------------------------------ around sends
def sent_headers(database, name):
    return [each.headers for each in Queue(name, database).browse(10)]


@pytest.mark.promise("around-sends")
def test_functions_surround_each_send_the_first_one_outermost(sales, database):
    @sales.around_sends
    def outer(message, sending, proceed):
        sales.seen.append(("outer", message, sending.intent, sending.destination))
        sending.headers["Shop.Tenant"] = "north"
        proceed()
        sales.seen.append("sent")

    @sales.around_sends
    def inner(message, sending, proceed):
        sending.headers["Shop.Seen"] = sending.headers["Shop.Tenant"]
        proceed()

    @sales.handles(Order)
    def handle(message, context):
        context.send(Charge(1), to="Billing")
        context.send(Charge(2), to="Billing", immediate=True)

    assert sales.handled()[0].kind is Kind.HANDLED

    assert sales.seen == [
        step
        for sent in ((Order(0), "Send", "Sales"), (Charge(1), "Send", "Billing"), (Charge(2), "Send", "Billing"))
        for step in (("outer", *sent), "sent")
    ]
    assert [(each["Shop.Tenant"], each["Shop.Seen"]) for each in sent_headers(database, "Billing")] == [
        ("north", "north")
    ] * 2


def test_functions_surround_events_and_replies_of_async_handlers_and_know_the_context(sales, database):
    @sales.around_sends
    def stamped(message, sending, proceed):
        assert sending.bus.message_id == sending.headers["NServiceBus.RelatedTo"]
        sales.seen.append((type(message), sending.intent, sending.destination))
        proceed()

    @sales.handles(Order)
    async def handle(message, context):
        context.publish(Charge(1))
        context.reply(Charge(2))
        await context.send(Charge(3), to="Billing", immediate=True)

    web = Endpoint("Web", send_only=True, reply_address="Billing")
    with web.open(database) as bus:
        bus.send(Order(1), to="Sales")
    assert sales.process_one(database).kind is Kind.HANDLED
    assert [each[1:] for each in sales.seen] == [
        ("Publish", None),
        ("Reply", database.canonical(parse_address("Billing"))),
        ("Send", "Billing"),
    ]


@pytest.mark.promise("around-sends")
def test_a_function_refuses_a_message_by_an_error_and_none_is_lost_in_silence(sales, database):
    def refuse(message, sending, proceed):
        raise PermissionError("not on Sundays")

    def forget(message, sending, proceed): ...

    def twice(message, sending, proceed):
        proceed()
        proceed()

    def swallow(message, sending, proceed):
        sending.headers["NServiceBus.MessageId"] = ""
        with suppress(InvalidMessage):
            proceed()

    for function, error, words in (
        (refuse, PermissionError, "Sundays"),
        (forget, InvalidMessage, r"forget, which is around sends, did not send a Order. Let it call proceed\(\)"),
        (twice, InvalidMessage, "called proceed.. twice for a Order"),
        (swallow, InvalidMessage, "did not send"),
        (lambda _, sending, proceed: sending.headers.update(Tenant=7) or proceed(), InvalidMessage, "Tenant"),
    ):
        sales.surroundings.sends[:] = [function]
        with pytest.raises(error, match=words), sales.open(database) as bus:
            bus.send(Order(1), to="Sales")

    sales.surroundings.sends.clear()
    assert Queue("Sales", database).peek(10) == 0


def test_a_function_around_sends_is_a_plain_one_of_three_arguments(sales):
    with pytest.raises(SettingsError, match=r"around sends of Sales is async.*plain function"):

        @sales.around_sends
        async def stamped(message, sending, proceed): ...

    with pytest.raises(SettingsError, match=r"def two\(message, sending, proceed\)"):

        @sales.around_sends
        def two(message, sending): ...


# ------------------------------------------------------------------ hooks
def test_hooks_run_once_in_order_and_those_of_the_stop_in_reverse_before_resources_end(sales):
    @sales.provides(Client)
    def client():
        yield Client()
        sales.seen.append("resource")

    @sales.handles(Order)
    def handle(message, context, client: Client): ...

    for name in ("a", "b"):
        sales.at_stop(lambda name=name: sales.seen.append(f"stop {name}"))

    @sales.at_start
    def first():
        sales.seen.append("first")

    @sales.at_start
    async def second():
        await asyncio.sleep(0)
        sales.seen.append("second")

    hooks = sales.surroundings.hooks
    threads = [threading.Thread(target=hooks.start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sales.handled()[0].kind is Kind.HANDLED
    sales.close()

    assert sales.seen == ["first", "second", "stop b", "stop a", "resource"]


def test_a_start_that_fails_is_tried_again_from_where_it_failed(sales, caplog):
    failures = [OSError("no network")]

    @sales.at_start
    def first():
        sales.seen.append("first")

    @sales.at_start
    def connect():
        if failures:
            raise failures.pop()
        sales.seen.append("connected")

    @sales.at_stop
    def broken():
        raise ValueError("broken")

    @sales.at_stop
    def ended():
        sales.seen.append("ended")

    hooks = sales.surroundings.hooks
    with pytest.raises(
        StartFailed, match=r"connect at the start of Sales failed with OSError: no network.*tried again"
    ):
        hooks.start()
    hooks.stop()
    assert sales.seen == ["first"]
    hooks.start()
    hooks.stop()

    assert sales.seen == ["first", "connected", "ended"]
    assert "broken at the stop of Sales failed" in caplog.text


def test_hooks_of_the_wrong_form_are_refused(sales):
    with pytest.raises(SettingsError, match=r"at the start of Sales takes \(context\)"):
        sales.at_start(lambda context: None)
    with pytest.raises(SettingsError, match=r"def alarm\(queue, error\)"):

        @sales.at_critical_error
        def alarm(error): ...

    with pytest.raises(SettingsError, match="is async"):

        @sales.at_critical_error
        async def page(queue, error): ...


# ------------------------------------------------------------------ methods of sagas
@dataclass
class State:
    number: int = 0
    seen: str = ""


@pytest.mark.promise("around-is-in-the-transaction")
@pytest.mark.parametrize("is_async", [False, True])
def test_functions_surround_methods_of_sagas_which_ask_for_resources(sales, is_async):
    seen = sales.seen

    class Policy(Saga[State], correlate={Order: "number"}):
        @starts(Order)
        def place(self, message: Order, context: SagaContext, client: Client) -> None:
            seen.extend((self.state.seen, type(client)))
            self.state.seen = "placed"

    class AsyncPolicy(Saga[State], correlate={Order: "number"}):
        @starts(Order)
        async def place(self, message: Order, context: AsyncSagaContext, *, client: Client) -> None:
            await asyncio.sleep(0)
            seen.extend((self.state.seen, type(client)))
            self.state.seen = "placed"

    sales.provides(Client)(Client)
    with temporary_database() as database:
        sales.saga(AsyncPolicy if is_async else Policy)

        def bound(message, context, proceed):
            seen.append((message, context.message_id is not None))
            return proceed()

        async def bound_async(message, context, proceed):
            seen.append((message, context.message_id is not None))
            await proceed()

        sales.around(bound_async if is_async else bound)
        prepare(sales, database)
        with sales.open(database) as bus:
            bus.send(Order(7), to="Sales")
            bus.send(Order(7), to="Sales")
        outcomes = [sales.process_one(database) for _ in range(2)]

    assert [outcome.kind for outcome in outcomes] == [Kind.HANDLED] * 2
    assert seen == [(Order(7), True), "", Client, (Order(7), True), "placed", Client]
