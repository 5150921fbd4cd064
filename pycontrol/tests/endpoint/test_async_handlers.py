"""`async def` handlers and `async with endpoint.open(…)`: the same promises as plain ones, on every engine."""

import asyncio
import logging
import threading
from dataclasses import dataclass

import psycopg
import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.function import FunctionEndpoint
from rowpost.errors import HandlerEnded, InvalidMessage
from rowpost.handling.event_loop import afterwards, in_thread, run
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.recoverability.stopping import FORCED, STOP, HandlerInterrupted
from rowpost.sagas.declaration import Saga, starts
from rowpost.testing import SagaTest
from rowpost.transport.queue import Queue
from tests.support.orders import Charge, Order


@pytest.fixture
def work(database, queue, sql, target):
    """Handles one order by an async function, and returns the outcome; `rows`, `sent` are what it left."""
    sql.run("DROP TABLE IF EXISTS business")
    sql.run("CREATE TABLE business (number integer NOT NULL)")
    sql.run("DELETE FROM rowpost.failure")
    for name in ("Billing", "error"):
        sql.empty(name)
    return Work(database, queue, sql, target)


class Work:
    def __init__(self, database, queue, sql, target):
        self.database, self.queue, self.sql, self.target = database, queue, sql, target
        self.mark = "%s" if database.engine == "postgresql" else "?"

    def does(self, handle, **options):
        options = {"recoverability": Recoverability(immediate_retries=1, delayed_retries=0), **options}
        endpoint = Endpoint("Sales", **options)
        endpoint.handles("Shop.Order", Order)(handle)
        with endpoint.open(self.database) as bus:
            bus.send(Order(1), to="Sales")
        return Pipeline(self.database, "Sales", endpoint, reconnect=self.database.open_second).process_one()

    async def insert(self, connection, number):
        text = f"INSERT INTO business VALUES ({self.mark})"
        await connection.execute(text, *([[number]] if self.mark == "%s" else [number]))

    @property
    def rows(self):
        return self.sql.value("SELECT COUNT(*) FROM business")

    @property
    def sent(self):
        return Queue("Billing", self.database).peek(10)


def test_what_an_async_handler_writes_and_sends_commits_with_the_message(work):
    async def handle(message, context):
        await work.insert(context.connection, message.number)
        await asyncio.sleep(0.01)
        context.send(Charge(message.number), to="Billing")

    assert work.does(handle).kind is Kind.HANDLED
    assert (work.rows, work.sent, work.queue.peek(10)) == (1, 1, 0)


def test_rows_can_be_read(work):
    read = []

    async def handle(message, context):
        await work.insert(context.connection, 5)
        cursor = await context.connection.execute("SELECT number FROM business")
        read.append((await cursor.fetchone())[0])
        await cursor.close()
        async with context.connection.cursor() as another:
            await another.execute("SELECT number + 1 FROM business")
            read.extend([row[0] async for row in another])

    assert work.does(handle).kind is Kind.HANDLED
    assert read == [5, 6]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
def test_an_error_of_an_async_handler_undoes_all_and_counts_an_attempt(work, error):
    async def handle(message, context):
        await work.insert(context.connection, message.number)
        context.send(Charge(message.number), to="Billing")
        raise error

    outcome = work.does(handle)

    assert (outcome.kind, outcome.attempts) == (Kind.FAILED, 1)
    assert (work.rows, work.sent, work.queue.peek(10)) == (0, 0, 1)


@pytest.mark.parametrize("how", ["commit", "rollback", "close", "COMMIT", "ROLLBACK"])
def test_an_async_handler_must_not_end_its_transaction(work, how):
    if work.database.engine != "postgresql":
        pytest.skip("pyodbc's connection is not guarded; an AwaitedConnection has no such methods")

    async def handle(message, context):
        await work.insert(context.connection, message.number)
        if how.isupper():
            await context.connection.execute(how)
        else:
            await getattr(context.connection, how)()

    outcome = work.does(handle)

    assert "HandlerBrokeTransaction" in outcome.error
    assert outcome.kind is (Kind.MOVED_TO_ERROR if how == "COMMIT" else Kind.FAILED)


def test_a_savepoint_of_an_async_handler_is_part_of_the_message(work):
    if work.database.engine != "postgresql":
        pytest.skip("pyodbc has no savepoints of its own")

    async def handle(message, context):
        await work.insert(context.connection, 1)
        with pytest.raises(psycopg.errors.DivisionByZero):
            async with context.connection.transaction():
                await work.insert(context.connection, 2)
                await context.connection.execute("SELECT 1/0")

    assert work.does(handle).kind is Kind.HANDLED
    assert work.rows == 1


def test_a_connection_and_a_context_refuse_to_be_used_after_the_handler(work):
    kept = []

    async def handle(message, context):
        kept.extend((context, context.connection))

    assert work.does(handle).kind is Kind.HANDLED
    context, connection = kept

    with pytest.raises(HandlerEnded):
        context.send(Charge(1), to="Billing")
    if work.database.engine == "postgresql":
        with pytest.raises(HandlerEnded):
            asyncio.run(connection.execute("SELECT 1"))
    assert work.sent == 0


def test_what_is_sent_at_once_is_awaited_and_stays_sent(work):
    async def handle(message, context):
        await context.send(Charge(1), to="Billing", immediate=True)
        raise ValueError("later")

    assert work.does(handle).kind is Kind.FAILED
    assert work.sent == 1


def test_an_immediate_send_that_is_not_awaited_fails_the_attempt(work):
    async def handle(message, context):
        context.send(Charge(1), to="Billing", immediate=True)

    outcome = work.does(handle)

    assert outcome.kind is Kind.FAILED
    assert "was not awaited, so that nothing was sent" in outcome.error
    assert work.sent == 0


def test_a_handler_that_was_cancelled_from_within_has_failed(work):
    async def handle(message, context):
        asyncio.current_task().cancel()
        await asyncio.sleep(1)

    outcome = work.does(handle)

    assert outcome.kind is Kind.FAILED
    assert "was cancelled, and not by rowpost" in outcome.error


def test_a_stop_by_force_cancels_the_task_and_counts_nothing(work, monkeypatch):
    monkeypatch.setattr(STOP.process, "memory", bytearray(1))
    ended = []

    async def handle(message, context):
        await work.insert(context.connection, 1)
        STOP.process.request(FORCED)
        STOP.process.cancel()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    with pytest.raises(HandlerInterrupted):
        work.does(handle)

    assert ended == [True]
    assert (work.rows, work.queue.peek(10), work.sql.value("SELECT COUNT(*) FROM rowpost.failure")) == (0, 1, 0)


def test_a_discard_and_the_properties_of_the_message(work):
    seen = {}

    async def handle(message, context):
        seen.update(id=context.message_id, body=context.body, stopping=context.stopping, kind=type(context).__name__)
        context.discard("nobody needs it")

    assert work.does(handle).kind is Kind.DISCARDED
    assert seen["body"] == b'{"Number":1}'
    assert (seen["stopping"], seen["kind"]) == (False, "AsyncContext")


def test_a_request_is_refused_in_an_async_handler(work):
    async def handle(message, context):
        await context.request(Charge(1), to="Billing", timeout=None)

    assert "A handler cannot wait for a reply" in work.does(handle).error


def test_an_async_handler_in_the_mode_none(work):
    async def handle(message, context):
        await work.insert(context.connection, 1)
        context.send(Charge(1), to="Billing")

    assert work.does(handle, transaction_mode="none", recoverability=None).kind is Kind.HANDLED
    assert (work.rows, work.sent) == (1, 1)


def test_an_async_function_of_the_settings(work):
    async def handle(message, connection):
        await work.insert(connection, 1)

    endpoint = FunctionEndpoint(handle, "Sales")
    work.queue.send(b"{}")

    assert Pipeline(work.database, "Sales", endpoint).process_one().kind is Kind.HANDLED
    assert work.rows == 1


def test_a_value_that_is_returned_is_ignored_with_a_warning(work, caplog):
    async def handle(message, context):
        return 1

    with caplog.at_level(logging.WARNING):
        assert work.does(handle).kind is Kind.HANDLED

    assert "returned a int. The returned value is ignored" in caplog.text


def test_a_call_that_is_put_behind_one_of_a_cancelled_task_is_executed_after_it():
    gate, done = threading.Event(), []

    async def handle():
        waiting = asyncio.ensure_future(in_thread(lambda: done.append(("first", gate.wait(10)))))
        await asyncio.sleep(0)
        waiting.cancel()
        afterwards(done.append, "second")
        gate.set()
        return "ended"

    assert run(handle, name="handle") == "ended"
    assert done == [("first", True), "second"]


# ------------------------------------------------------------------ sagas
@dataclass
class Progress:
    number: int
    steps: int = 0


class Steps(Saga[Progress], correlate={Order: "number"}):
    @starts(Order)
    async def on_order(self, message, context):
        await asyncio.sleep(0.001)
        self.state.steps += 1
        context.send(Charge(message.number), to="Billing")


def test_a_method_of_a_saga_may_be_async():
    with SagaTest(Steps) as saga:
        saga.handle(Order(7))
        saga.handle(Order(7))

        assert saga.state(7).steps == 2
        assert saga.sent == [Charge(7), Charge(7)]


# ------------------------------------------------------------------ outside of handlers
def test_a_bus_on_an_event_loop_sends_at_the_end_of_its_block(work):
    endpoint = Endpoint("Sales")

    async def program():
        async with endpoint.open(work.database) as bus:
            bus.send(Charge(1), to="Billing")
            inside = work.sent
            await bus.send(Charge(2), to="Billing", immediate=True)
        with pytest.raises(ValueError, match="stop"):
            async with endpoint.open(work.database) as bus:
                bus.send(Charge(3), to="Billing")
                raise ValueError("stop")
        with pytest.raises(InvalidMessage, match="was not awaited"):
            async with endpoint.open(work.database) as bus:
                bus.publish(Charge(4), immediate=True)
        return inside

    assert asyncio.run(program()) == 0
    assert work.sent == 2


def test_a_bus_joins_the_transaction_of_an_async_connection(work):
    if work.database.engine != "postgresql":
        pytest.skip("SQL Server has no async driver here")
    endpoint = Endpoint("Sales")

    async def program():
        connection = await psycopg.AsyncConnection.connect(work.target.url)
        async with connection:
            async with endpoint.open(connection) as bus:
                await bus.connection.execute("INSERT INTO business VALUES (1)")
                bus.send(Charge(1), to="Billing")
            before = work.sent
            await connection.commit()
            after = work.sent
            async with endpoint.open(connection) as bus:
                bus.send(Charge(2), to="Billing")
            await connection.rollback()
        return before, after

    assert asyncio.run(program()) == (0, 1)
    assert (work.rows, work.sent) == (1, 1)
