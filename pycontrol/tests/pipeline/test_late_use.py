"""What a handler got is refused after its end: a thread, a generator or a callback that kept it harms no other message."""

import threading
import weakref
from dataclasses import dataclass

import psycopg
import pytest

from rowpost.endpoint.endpoint import MODES, Endpoint
from rowpost.errors import HandlerEnded
from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.batches import Batches
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.sagas import Saga, starts
from rowpost.transport.queue import Queue
from rowpost.wire.message_types import message_type
from tests.support.crashing import TYPE, Order
from tests.support.pipelines import pipeline_with

HEADERS = {"NServiceBus.EnclosedMessageTypes": TYPE, "NServiceBus.ReplyToAddress": "Billing"}
INSERT = "INSERT INTO business (number) VALUES (99)"


@pytest.fixture
def business(queue, sql):
    """The table `business`, and Billing and error, empty."""
    sql.run("DROP TABLE IF EXISTS business")
    sql.run("CREATE TABLE business (number integer NOT NULL)")
    for name in ("Billing", "error"):
        sql.empty(name)
    return lambda: [row[0] for row in sql.run("SELECT number FROM business ORDER BY number")]


@pytest.fixture
def work(queue, open_database):
    """Handles as many orders as there are handlers, one after the other: each handler gets the context of its message."""
    made = []

    def handle(*handlers, mode="sends_atomic_with_receive", batch=1):
        endpoint = Endpoint("Sales", transaction_mode=mode, recoverability=Recoverability(0, 0))

        @endpoint.handles(TYPE, Order)
        def run(order, context):
            handlers[order.number - 1](context)

        for number in range(1, len(handlers) + 1):
            queue.send(b'{"Number":%d}' % number, {**HEADERS, "NServiceBus.MessageId": f"order-{number}"})
        database = open_database()
        made.append(pipeline_with(database, "Sales", endpoint, reconnect=database.open_second))
        batches = Batches(made[-1], BatchSize(batch, None, now=batch))
        return [each.kind for _ in range(1 if batch > 1 else len(handlers)) for each in batches.process()]

    yield handle
    for pipeline in made:
        pipeline.close()


def in_a_thread(act):
    """Run something in a thread, and return what it raised."""
    raised = []

    def run():
        try:
            act()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    return raised[0] if raised else None


USES = {
    "send": lambda context: context.send(Order(99), to="Billing"),
    "immediate send": lambda context: context.send(Order(99), to="Billing", immediate=True),
    "publish": lambda context: context.publish(Order(99)),
    "reply": lambda context: context.reply(Order(99)),
    "forward": lambda context: context.forward_current_message_to("Billing"),
    "discard": lambda context: context.discard("late"),
    "stop_handlers": lambda context: context.stop_handlers(),
    "send_local": lambda context: context.send_local(Order(99)),
    "connection": lambda context: context.connection,
    "database": lambda context: context.database,
    "enlist": lambda context: context.enlist("shop"),
    "outgoing": lambda context: context.outgoing.append(None),
}


@pytest.mark.parametrize("use", USES)
def test_a_context_is_refused_after_its_handler_with_an_error_that_names_the_message(work, business, queue, use):
    kept = []

    kinds = work(kept.append)
    error = in_a_thread(lambda: USES[use](kept[0]))

    assert isinstance(error, HandlerEnded)
    assert ("order-1" in str(error), TYPE in str(error), "'Sales'" in str(error)) == (True, True, True)
    assert (kinds, business(), Queue("Billing", queue.database).peek()) == ([Kind.HANDLED], [], 0)
    assert (kept[0].message_id, kept[0].body, kept[0].headers["NServiceBus.MessageId"]) == (
        "order-1",
        b'{"Number":1}',
        "order-1",
    )


@pytest.mark.parametrize("batch", [1, 2], ids=["one by one", "in a batch"])
def test_a_context_is_refused_while_the_next_message_is_handled(work, business, queue, batch):
    kept, errors = [], []

    def next_one(context):
        errors.extend(in_a_thread(lambda use=use: use(kept[0])) for use in USES.values())

    kinds = work(kept.append, next_one, batch=batch)

    assert {type(error) for error in errors} == {HandlerEnded}
    assert (kinds, business(), Queue("Billing", queue.database).peek()) == ([Kind.HANDLED] * 2, [], 0)


def test_a_context_of_a_handler_that_failed_is_refused_too(work, business):
    kept = []

    def fail(context):
        kept.append(context)
        raise ValueError("no such order")

    kinds = work(fail)

    assert kinds == [Kind.MOVED_TO_ERROR]
    assert isinstance(in_a_thread(lambda: USES["send"](kept[0])), HandlerEnded)


LATE = {
    "execute": lambda connection, cursor: connection.execute(INSERT),
    "a cursor": lambda connection, cursor: cursor.execute(INSERT),
    "a new cursor": lambda connection, cursor: connection.cursor().execute(INSERT),
    "commit": lambda connection, cursor: connection.commit(),
    "rollback": lambda connection, cursor: connection.rollback(),
    "close": lambda connection, cursor: connection.close(),
    "a block": lambda connection, cursor: connection.transaction().__enter__(),
    "a queue": lambda connection, cursor: Queue("Billing", connection).send(b"late"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("late", LATE)
def test_a_connection_that_was_kept_is_refused_while_idle_and_while_the_next_message_is_handled(
    work, database, business, queue, mode, late
):
    if database.engine != "postgresql":
        pytest.skip("pyodbc lends the connection itself")
    kept, errors = [], []

    def keep(context):
        kept.extend((context.connection, context.connection.cursor()))

    def next_one(context):
        errors.append(in_a_thread(lambda: LATE[late](*kept)))
        context.connection.execute("INSERT INTO business (number) VALUES (2)")

    kinds = work(keep, next_one, mode=mode)
    errors.append(in_a_thread(lambda: LATE[late](*kept)))

    assert [type(error) for error in errors] == [HandlerEnded] * 2, errors
    assert "order-1" in str(errors[0])
    assert (kinds, business(), Queue("Billing", queue.database).peek()) == ([Kind.HANDLED] * 2, [2], 0)


def test_the_connection_of_a_plain_function_is_refused_too(queue, open_database, business):
    database, kept = open_database(), []
    if database.engine != "postgresql":
        pytest.skip("pyodbc lends the connection itself")
    queue.send(b"1", {"NServiceBus.MessageId": "order-1"})

    pipeline = pipeline_with(database, "Sales", lambda message, connection: kept.append(connection))
    pipeline.process_one()
    error = in_a_thread(lambda: kept[0].execute(INSERT))
    pipeline.close()

    assert (type(error), "order-1" in str(error), business()) == (HandlerEnded, True, [])


KEEPS = {
    "a cursor": (lambda connection: connection.cursor(), lambda kept: kept.execute(INSERT)),
    "a cursor with a result": (lambda connection: connection.execute("SELECT 1"), lambda kept: kept.execute(INSERT)),
    "a method": (lambda connection: connection.execute, lambda kept: kept(INSERT)),
    "a weak reference to something else that keeps it": (
        lambda connection: [connection, weakref.ref(connection)],
        lambda kept: kept[1]().execute(INSERT),
    ),
    "a weak reference": (weakref.ref, lambda kept: kept().execute(INSERT)),
    "a transaction": (lambda connection: connection.transaction(), lambda kept: kept.__enter__()),
    "the connection of a cursor": (
        lambda connection: connection.cursor().connection,
        lambda kept: kept.execute(INSERT),
    ),
}


@pytest.mark.parametrize("keep", KEEPS)
def test_whatever_keeps_a_connection_does_not_reach_the_next_messages_transaction(work, business, database, keep):
    if database.engine != "postgresql":
        pytest.skip("pyodbc lends the connection itself")
    kept, errors, (take, use) = [], [], KEEPS[keep]

    def next_one(context):
        context.connection.execute("INSERT INTO business (number) VALUES (2)")
        errors.append(in_a_thread(lambda: use(kept[0])))

    kinds = work(lambda context: kept.append(take(context.connection)), next_one)

    # what only a weak reference knew is gone
    assert isinstance(errors[0], (HandlerEnded, AttributeError) if keep == "a weak reference" else HandlerEnded), errors
    assert (kinds, business()) == ([Kind.HANDLED] * 2, [2])


def set_factories(connection):
    connection.row_factory = psycopg.rows.dict_row
    connection.cursor_factory = psycopg.ClientCursor


def add_an_attribute(connection):
    connection.note = "mine"


@pytest.mark.parametrize("change", [set_factories, add_an_attribute])
@pytest.mark.parametrize("batch", [1, 3], ids=["one by one", "in a batch"])
def test_a_handler_gets_a_connection_on_which_no_other_handler_has_set_anything(
    work, business, database, batch, change
):
    if database.engine != "postgresql":
        pytest.skip("pyodbc lends the connection itself")
    found = []

    def look(context):
        connection = context.connection
        found.append(
            (
                connection.execute("SELECT 1").fetchone(),
                hasattr(connection, "note"),
                connection.cursor().connection is connection,
            )
        )

    kinds = work(look, lambda context: change(context.connection), look, batch=batch)

    assert (kinds, found) == ([Kind.HANDLED] * 3, [((1,), False, True)] * 2)


def test_a_connection_that_is_lent_again_is_guarded_as_before(work, business, database):
    if database.engine != "postgresql":
        pytest.skip("pyodbc lends the connection itself")

    kinds = work(
        lambda context: context.connection.execute(INSERT),
        lambda context: context.connection.execute("COMMIT AND CHAIN"),
    )

    assert (kinds, business()) == ([Kind.HANDLED, Kind.MOVED_TO_ERROR], [99])


def test_the_connection_that_is_lent_is_one_of_the_driver(work, database):
    seen = []

    work(lambda context: seen.append(context.connection))

    assert isinstance(seen[0], type(database.driver_connection))
    assert type(seen[0]).__module__ == type(database.driver_connection).__module__


@message_type("Shop.Messages.Begin")
@dataclass
class Begin:
    number: str


@dataclass
class State:
    number: str


def test_the_context_of_a_saga_is_refused_too(queue, open_database, business, target):
    from rowpost.testing import SagaTest

    kept = []

    class Policy(Saga[State], correlate={Begin: "number"}):
        @starts(Begin)
        def begin(self, message, context):
            kept.append(context)

    with SagaTest(Policy, open_database()) as test:  # without one it starts the server of the user
        test.handle(Begin("1"))

    assert isinstance(in_a_thread(lambda: kept[0].send(Begin("2"), to="Billing")), HandlerEnded)


def test_a_bus_is_refused_after_its_block_also_if_that_failed(database, business):
    endpoint, kept = Endpoint("Sales"), []
    with endpoint.open(database) as bus:
        kept.append(bus)
    with pytest.raises(ValueError, match="no"), endpoint.open(database) as bus:
        kept.append(bus)
        raise ValueError("no")

    errors = [in_a_thread(lambda each=each: each.send(Order(1), to="Billing")) for each in kept]

    assert [type(each) for each in errors] == [HandlerEnded] * 2
    assert "'Sales'" in str(errors[0])


def test_threads_within_a_handler_send_and_use_the_connection(work, business, database, queue):
    if database.engine != "postgresql":
        pytest.skip("pyodbc's connection is not for several threads at once")

    def handle(context):
        def one(number):
            context.send(Order(number), to="Billing")
            context.connection.execute("INSERT INTO business (number) VALUES (%s)", (number,))

        threads = [threading.Thread(target=one, args=(number,)) for number in range(50)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(20)

    kinds = work(handle)

    assert (kinds, business(), Queue("Billing", queue.database).peek()) == ([Kind.HANDLED], [*range(50)], 50)
