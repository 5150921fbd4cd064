"""`@endpoint.around` and `@endpoint.provides`: functions around handlers, and what handlers share in a process."""

import asyncio
import sys
import threading
from types import SimpleNamespace

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import SettingsError
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.transport.queue import Queue
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
