"""Several messages in one transaction, on every engine: as if each had been alone, and never more or less than that."""

from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta

import psycopg
import pytest

from rowpost.database.dialects.sqlserver import dialect as sqlserver
from rowpost.endpoint.endpoint import MODES, Endpoint
from rowpost.errors import Deadlock, HandlerBrokeTransaction, SagaConflict
from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.batches import Batches
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address
from rowpost.wire.message import OutgoingMessage
from rowpost.wire.message_types import message_type
from tests.support.crashing import TYPE, Order, write
from tests.support.pipelines import pipeline_with

HEADERS = {"NServiceBus.EnclosedMessageTypes": TYPE}
PATIENCE = 200  # receives until the queue must be empty


@message_type("Shop.Messages.OrderShipped")
@dataclass(frozen=True)
class OrderShipped:
    number: int


class Desk:
    """The queue Sales, worked in batches; each order is written into `business` and sent on to Billing."""

    def __init__(self, queue, database, sql):
        self.queue, self.database, self.sql = queue, database, sql
        self.calls, self.numbers, self.wishes = [], [], {}
        self.sends_to = {}

    def endpoint(self, mode="sends_atomic_with_receive"):
        policy = None if mode == "none" else Recoverability(2, 0)
        endpoint = Endpoint("Sales", transaction_mode=mode, recoverability=policy)

        @endpoint.handles(TYPE, Order)
        def handle(order, context):
            self.calls.append(order.number)
            write(context.connection, order.number)
            context.send(Order(order.number), to=self.sends_to.get(order.number, "Billing"), headers=HEADERS)
            self.wishes.get(order.number, lambda context: None)(context)

        return endpoint

    def order(self, *numbers):
        self.queue.send_many(OutgoingMessage(b'{"Number":%d}' % number, HEADERS) for number in numbers)

    def batches(self, size=5, handler=None):
        handler = handler or self.endpoint()
        self.pipeline = pipeline_with(self.database, "Sales", handler, attempts=3, reconnect=self.database.open_second)
        return Batches(self.pipeline, BatchSize(size, None, now=size))

    def work(self, size=5, handler=None):
        """Until the queue is empty; what each transaction brought."""
        batches, seen, anchor = self.batches(size, handler), [], None
        for _ in range(PATIENCE):
            outcomes = batches.process(anchor)
            seen.append(outcomes)
            if outcomes[0].kind is Kind.EMPTY and anchor is None:
                self.pipeline.close()
                return [[each.kind for each in outcomes] for outcomes in seen if outcomes[0].kind is not Kind.EMPTY]
            kept = outcomes[-1].kind in (Kind.HANDLED, Kind.MOVED_TO_ERROR, Kind.CORRUPT, Kind.EXPIRED)
            anchor = outcomes[-1].row_version if kept else None
        raise AssertionError(f"the queue is not empty after {PATIENCE} receives: {seen[-3:]}")

    def written(self):
        return sorted(row[0] for row in self.sql.run("SELECT number FROM business"))

    def sent(self):
        return [int(message.body.decode()[10:-1]) for message in Queue("Billing", self.queue.database).browse(1000)]

    def errors(self):
        return [message.body for message in Queue("error", self.queue.database).browse(100)]


@pytest.fixture
def desk(queue, open_database, sql):
    sql.run("DROP TABLE IF EXISTS business")
    sql.run("CREATE TABLE business (number integer NOT NULL)")
    for name in ("Billing", "error"):
        sql.empty(name)
    return Desk(queue, open_database(), sql)


def flat(kinds):
    return Counter(kind for each in kinds for kind in each)


def fail(context):
    raise ValueError("no such order")


def doom(context):
    """A statement that fails and dooms or ends the transaction; nobody hears of it."""
    try:
        if context.database.engine == "sqlserver":
            context.connection.execute("SET XACT_ABORT ON; INSERT INTO business (number) VALUES (NULL);")
        else:
            context.connection.execute("INSERT INTO business (number) VALUES (NULL)")
    except context.database.dialect.driver_error():
        return


def run(statement):
    return lambda context: context.connection.execute(statement)


def once(wish):
    """Does something at the first call only."""
    left = [wish]
    return lambda context: left.pop()(context) if left else None


# ------------------------------------------------------------------ all goes well
def test_a_batch_is_one_transaction_and_each_message_leaves_its_data_and_what_it_sent(desk):
    desk.order(*range(5))

    kinds = desk.work()

    assert kinds == [[Kind.HANDLED] * 5]
    assert (desk.written(), desk.sent(), desk.calls) == ([*range(5)], [*range(5)], [*range(5)])
    assert desk.queue.peek() == 0


def test_nothing_of_a_batch_is_seen_before_its_last_message_was_handled(desk, open_database):
    desk.order(1, 2, 3)
    other = Queue("Billing", open_database())
    seen = []
    desk.wishes[3] = lambda context: seen.append(other.peek())

    desk.work()

    assert (seen, desk.sent()) == ([0], [1, 2, 3])


def test_a_single_consumer_keeps_the_order_in_batches_and_across_them(desk):
    numbers = [*range(23)]
    desk.order(*numbers)

    kinds = desk.work(size=7)

    assert [len(each) for each in kinds] == [7, 7, 7, 2]
    assert (desk.calls, desk.sent()) == (numbers, numbers)


def test_messages_with_the_same_id_from_two_messages_of_a_batch_both_arrive(desk):
    desk.order(1, 2)
    endpoint = Endpoint("Sales")

    @endpoint.handles(TYPE, Order)
    def handle(order, context):
        for _ in range(2):  # the two operations of one message are stored as one row
            context.send(order, to="Billing", headers={**HEADERS, "NServiceBus.MessageId": "the same"})

    desk.work(handler=endpoint)

    assert desk.sent() == [1, 2]


def test_events_and_messages_to_the_same_queue_keep_their_order(desk, database):
    address = database.canonical(parse_address("Billing"))
    database.call("subscribe", endpoint="Billing", topic="Shop.Messages.OrderShipped", queue_address=address)
    desk.order(1, 2, 3)
    endpoint = Endpoint("Sales")

    @endpoint.handles(TYPE, Order)
    def handle(order, context):
        context.send(Order(10 * order.number), to="Billing", headers=HEADERS)
        context.publish(OrderShipped(10 * order.number + 1))

    try:
        desk.work(handler=endpoint)
    finally:
        database.call("unsubscribe", endpoint="Billing", topic="Shop.Messages.OrderShipped")

    assert desk.sent() == [10, 11, 20, 21, 30, 31]


# ------------------------------------------------------------------ one fails
@pytest.mark.parametrize("bad", [1, 3, 5], ids=["first", "middle", "last"])
def test_a_failing_message_takes_no_neighbour_with_it_and_leaves_nothing(desk, bad):
    desk.order(1, 2, 3, 4, 5)
    desk.wishes[bad] = fail

    kinds = desk.work()

    good = [number for number in range(1, 6) if number != bad]
    assert (desk.written(), desk.sent()) == (good, good)
    assert desk.errors() == [b'{"Number":%d}' % bad]
    assert flat(kinds) == {Kind.HANDLED: 4, Kind.FAILED: 2, Kind.MOVED_TO_ERROR: 1}


@pytest.mark.parametrize("bad", [1, 3, 5], ids=["first", "middle", "last"])
def test_each_call_of_a_failing_handler_counts_as_one_attempt(desk, bad):
    desk.order(1, 2, 3, 4, 5)
    desk.wishes[bad] = fail

    desk.work()

    assert desk.calls.count(bad) == 3


def test_after_a_failure_the_message_goes_alone_and_all_others_together(desk):
    desk.order(*range(9))
    desk.wishes[2] = once(fail)

    kinds = desk.work(size=5)

    assert kinds == [[Kind.FAILED], [Kind.HANDLED] * 2, [Kind.HANDLED], [Kind.HANDLED] * 5, [Kind.HANDLED]]
    assert desk.sent() == [*range(9)]


def test_a_message_that_failed_before_leaves_no_count_when_it_succeeds_in_a_batch(desk, sql):
    desk.order(1, 2)
    desk.wishes[2] = once(fail)
    batches = desk.batches(size=2)
    before = sql.value("SELECT COUNT(*) FROM rowpost.failure")

    failed = batches.process()
    together = Batches(desk.pipeline, BatchSize(2, None, now=2)).process()
    desk.pipeline.close()

    assert [each.kind for each in failed + together] == [Kind.FAILED, Kind.HANDLED, Kind.HANDLED]
    assert sql.value("SELECT COUNT(*) FROM rowpost.failure") == before


def test_a_failing_custom_policy_leaves_all_in_the_queue(desk):
    desk.order(1, 2, 3)

    def broken_policy(failure):
        raise LookupError("no policy")

    endpoint = desk.endpoint()
    endpoint.recoverability = Recoverability(2, 0, policy=broken_policy)
    desk.wishes[2] = fail

    outcomes = desk.batches(handler=endpoint).process()
    desk.pipeline.close()

    assert [each.kind for each in outcomes] == [Kind.UNMOVABLE]
    assert (desk.queue.peek(), desk.written(), desk.sent()) == (3, [], [])


@pytest.mark.parametrize("error", [Deadlock, SagaConflict])
def test_after_a_conflict_within_a_batch_which_is_no_attempt_messages_go_alone(desk, error):
    def conflict(context):
        raise error("another one was there before")

    desk.order(*range(1, 7))
    desk.wishes[2] = once(conflict)

    kinds = desk.work()

    assert kinds == [[Kind.DEADLOCKED], *[[Kind.HANDLED]] * 6]
    assert desk.sent() == [1, 2, 3, 4, 5, 6]


# ------------------------------------------------------------------ the whole transaction is lost
def test_a_transaction_that_a_handler_dooms_is_rolled_back_and_its_neighbours_are_handled(desk):
    desk.order(1, 2, 3, 4)
    desk.wishes[2] = doom

    desk.work()

    assert (desk.written(), desk.sent()) == ([1, 3, 4], [1, 3, 4])
    assert desk.errors() == [b'{"Number":2}']
    assert desk.calls.count(3) == 1  # nobody is called in a transaction that is lost already


@pytest.mark.parametrize("verb", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("bad", [1, 2, 4], ids=["first", "middle", "last"])
def test_a_handler_that_ends_the_transaction_ends_no_neighbours(desk, verb, bad):
    desk.order(1, 2, 3, 4)
    desk.wishes[bad] = run(verb)

    desk.work()

    good = [number for number in range(1, 5) if number != bad]
    assert desk.sent() == good
    assert [number for number in desk.written() if number != bad] == good
    assert desk.errors() == [b'{"Number":%d}' % bad]


@pytest.mark.parametrize(
    "verb", ["COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "ROLLBACK; BEGIN", "CLOSE ALL", "SELECT 1; COMMIT"]
)
def test_nothing_is_lost_or_doubled_whatever_a_handler_does_to_the_seal(desk, verb):
    if desk.database.engine == "sqlserver":
        pytest.skip("SQL Server's seal is the count of open transactions: the test above")
    desk.order(1, 2, 3, 4)
    desk.wishes[2] = once(run(verb))

    desk.work()

    assert (desk.written(), desk.sent(), desk.errors()) == ([1, 2, 3, 4], [1, 2, 3, 4], [])


def raw(*statements):
    """Execute statements through the driver's raw handle, whose answers nobody sees."""

    def act(context):
        handle = context.connection.pgconn
        for statement in statements:
            handle.exec_(statement.encode())

    return act


def by_another_cursor(*statements):
    """Execute statements by a cursor that is not the connection's own."""

    def act(context):
        for statement in statements:
            with suppress(psycopg.Error):
                psycopg.ClientCursor(context.connection).execute(statement)

    return act


def then(act):
    """Commit, and when the guard refuses that, act, and raise what the guard has raised."""

    def sabotage(context):
        try:
            run("CLOSE ALL; COMMIT")(context)
        except HandlerBrokeTransaction:
            act(context)
            raise

    return sabotage


def conflict(context):
    raise Deadlock("another transaction was first")


def end_session(context):
    """End the session from another one."""
    with closing(context.database.open_second()) as other:
        other.driver_connection.execute(
            "SELECT pg_terminate_backend(%s, 5000)", (context.database.driver_connection.info.backend_pid,)
        )


def end_session_and_see(context):
    end_session(context)
    with suppress(psycopg.Error):
        context.database.driver_connection.execute("SELECT 1")


SABOTAGE = {
    "commit, roll back": then(run("ROLLBACK")),
    "commit, read": then(run("SELECT 1")),
    "commit, conflict": then(conflict),
    "commit, session ends": then(end_session),
    "commit, session is seen to end": then(end_session_and_see),
    "sql": run("CLOSE ALL; COMMIT"),
    "sql, begin": run("CLOSE ALL; COMMIT; BEGIN"),
    "sql, two statements": lambda context: (run("CLOSE ALL")(context), run("COMMIT")(context)),
    "raw": raw("CLOSE ALL", "COMMIT"),
    "raw, begin": raw("CLOSE ALL", "COMMIT", "BEGIN"),
    "raw commit only": raw("COMMIT", "BEGIN"),
    "raw roll back": raw("ROLLBACK", "BEGIN"),
    "raw chain": raw("ROLLBACK AND CHAIN"),
    "prepare": run("CLOSE ALL; PREPARE TRANSACTION 'evil'"),
    "prepare, begin": lambda context: (
        run("CLOSE ALL")(context),
        run("PREPARE TRANSACTION 'evil'")(context),
        run("BEGIN")(context),
    ),
    "raw prepare, begin": raw("CLOSE ALL", "PREPARE TRANSACTION 'evil'", "BEGIN"),
    "another cursor": by_another_cursor("CLOSE ALL", "COMMIT", "BEGIN"),
    "another cursor, roll back": by_another_cursor("ROLLBACK", "BEGIN"),
}


@pytest.mark.parametrize("bad", [1, 3, 5], ids=["first", "middle", "last"])
@pytest.mark.parametrize("raises", [False, True], ids=["returns", "raises"])
@pytest.mark.parametrize("how", SABOTAGE)
def test_each_message_of_a_batch_ends_somewhere_whatever_a_handler_does_to_its_transaction(desk, how, raises, bad):
    if desk.database.engine == "sqlserver":
        pytest.skip("the statements are those of PostgreSQL")
    desk.order(1, 2, 3, 4, 5)

    def sabotage(context):
        SABOTAGE[how](context)
        if raises:
            raise ValueError("no such order")

    desk.wishes[bad] = once(sabotage) if "another" in how or "raw" in how else sabotage

    kinds = flat(desk.work())

    sent, failed = desk.sent(), sorted(int(body.decode()[10:-1]) for body in desk.errors())
    assert sorted(sent + failed) == [1, 2, 3, 4, 5], (sent, failed, kinds)  # each once
    assert set(sent) <= set(desk.written())
    assert all(desk.written().count(number) == 1 for number in sent)
    assert kinds[Kind.MOVED_TO_ERROR] == len(failed)  # an event for each


@pytest.mark.parametrize(
    "act",
    [run("ROLLBACK"), run("SELECT 1"), conflict, end_session, end_session_and_see],
    ids=["undo", "read", "conflict", "end", "seen"],
)
def test_a_message_whose_handler_commits_is_kept_whatever_comes_next(desk, act):
    if desk.database.engine == "sqlserver":
        pytest.skip("the statements are those of PostgreSQL")
    desk.order(1)
    desk.wishes[1] = then(act)

    desk.work(size=1)

    assert desk.errors() == [b'{"Number":1}']


@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize(
    "how",
    [run("CLOSE ALL; PREPARE TRANSACTION 'it''s evil'"), raw("CLOSE ALL", "PREPARE TRANSACTION 'evil'")],
    ids=["sql", "raw"],
)
def test_a_transaction_that_a_handler_prepares_is_rolled_back_and_holds_no_message(desk, how, size):
    if desk.database.engine == "sqlserver" or desk.sql.value("SHOW max_prepared_transactions") == "0":
        pytest.skip("the server has no PREPARE TRANSACTION")
    desk.order(1, 2, 3)
    desk.wishes[2] = how

    desk.work(size=size)

    assert (desk.sent(), desk.written(), desk.errors()) == ([1, 3], [1, 3], [b'{"Number":2}'])
    assert desk.sql.value("SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()") == 0


def test_a_prepared_transaction_that_cannot_be_rolled_back_is_named(desk):
    if desk.database.engine == "sqlserver" or desk.sql.value("SHOW max_prepared_transactions") == "0":
        pytest.skip("the server has no PREPARE TRANSACTION")
    desk.order(1)

    def prepare(context):
        try:
            run("PREPARE TRANSACTION 'evil'")(context)
        except HandlerBrokeTransaction:
            with closing(context.database.open_second()) as other:
                other.driver_connection.execute("COMMIT PREPARED 'evil'")
            raise

    desk.wishes[1] = prepare

    desk.work(size=1)
    (moved,) = Queue("error", desk.queue.database).browse(5)

    assert "prepared, under the name 'evil', the transaction" in moved.headers["NServiceBus.ExceptionInfo.Message"]
    assert desk.written() == [1]


@pytest.mark.parametrize("how", ["raw roll back", "raw chain", "raw commit only"])
def test_a_message_alone_whose_handler_uses_the_raw_handle_ends_once(desk, how):
    if desk.database.engine == "sqlserver":
        pytest.skip("pyodbc has no raw handle")
    desk.order(1)
    desk.wishes[1] = SABOTAGE[how]

    kinds = flat(desk.work(size=1))

    assert (desk.sent(), desk.errors()) == ([], [b'{"Number":1}'])
    assert kinds == {Kind.MOVED_TO_ERROR: 1}


def test_the_raw_handle_may_be_used_for_other_things(desk):
    if desk.database.engine == "sqlserver":
        pytest.skip("pyodbc has no raw handle")
    desk.order(1, 2, 3)
    desk.wishes[2] = raw("INSERT INTO business (number) VALUES (9)", "SAVEPOINT mine", "ROLLBACK TO mine")

    kinds = desk.work()

    assert (kinds, desk.written(), desk.sent()) == ([[Kind.HANDLED] * 3], [1, 2, 3, 9], [1, 2, 3])


def test_a_handler_that_closes_the_connection_loses_no_neighbour(desk):
    desk.order(1, 2, 3)
    desk.wishes[2] = once(lambda context: context.database.close())

    kinds = desk.work()

    assert flat(kinds) == {Kind.FAILED: 1, Kind.HANDLED: 3}
    assert (desk.written(), desk.sent()) == ([1, 2, 3], [1, 2, 3])


def test_what_cannot_be_sent_fails_its_own_message_only(desk):
    desk.order(1, 2, 3)
    desk.sends_to[2] = "Nowhere"

    desk.work()

    assert (desk.written(), desk.sent(), desk.errors()) == ([1, 3], [1, 3], [b'{"Number":2}'])


def test_a_session_that_cannot_be_set_back_fails_its_own_message(desk, monkeypatch):
    if desk.database.engine != "sqlserver":
        pytest.skip("PostgreSQL's RESET sets everything back")
    desk.order(1, 2)
    batches = desk.batches(handler=lambda message, connection: None)
    batches.process()  # the first look at the session
    desk.order(3)
    monkeypatch.setattr(sqlserver, "restore", lambda first, now: "SET NOCOUNT OFF;")
    monkeypatch.setattr(desk.database._session, "lent", False)

    (outcome,) = batches.process()

    assert (outcome.kind, outcome.attempts) == (Kind.FAILED, 1)
    assert desk.queue.peek() == 1


# ------------------------------------------------------------------ messages that no handler sees
def test_expired_and_corrupt_messages_in_the_middle_go_their_way_with_the_batch(desk, sql):
    desk.order(1)
    desk.queue.send(b"late", HEADERS, time_to_be_received=timedelta(milliseconds=1))
    desk.queue.send(b"odd", "{no JSON")
    desk.order(2)
    sql.wait_until_expired("Sales")

    kinds = desk.work()

    assert kinds == [[Kind.HANDLED, Kind.EXPIRED, Kind.CORRUPT, Kind.HANDLED]]
    assert (desk.written(), desk.sent()) == ([1, 2], [1, 2])
    (error,) = Queue("error", desk.queue.database).browse(10)
    assert (error.body, error.raw_headers) == (b"odd", "{no JSON")


def test_a_corrupt_message_that_cannot_be_moved_holds_up_no_neighbour(desk):
    desk.order(1)
    desk.queue.send(b"odd", "{no JSON")
    desk.order(2)
    pipeline = pipeline_with(
        desk.database, "Sales", lambda message, connection: desk.calls.append(message.body), error_queue="Nowhere"
    )
    batches = Batches(pipeline, BatchSize(5, None, now=5))

    first, second, third = (batches.process() for _ in range(3))
    pipeline.close()

    assert [each[0].kind for each in (first, second, third)] == [Kind.DEADLOCKED, Kind.HANDLED, Kind.UNMOVABLE]
    assert desk.queue.peek() == 2


def test_control_messages_never_reach_a_plain_function_in_a_batch_either(desk):
    desk.order(1)
    desk.queue.send(b"control", {"NServiceBus.ControlMessage": "True"})
    seen = []

    desk.work(handler=lambda message, connection: seen.append(message.body))

    assert (seen, desk.queue.peek()) == ([b'{"Number":1}'], 0)


# ------------------------------------------------------------------ other modes
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "sends_atomic_with_receive"])
def test_the_other_modes_take_one_message_at_a_time(desk, mode):
    desk.order(1, 2, 3)

    kinds = desk.work(handler=desk.endpoint(mode))

    assert kinds == [[Kind.HANDLED]] * 3
    assert desk.sent() == [1, 2, 3]


# ------------------------------------------------------------------ round trips
def looks(desk, handler, monkeypatch):
    """How often a batch of five asks whether its transaction is still open, while handlers work."""
    asked = []
    batches = desk.batches(handler=handler)
    intact = desk.database.is_intact
    monkeypatch.setattr(desk.database, "is_intact", lambda begin: asked.append(begin) or intact(begin))
    desk.order(1, 2, 3, 4, 5)
    outcomes = batches.process()
    desk.pipeline.close()
    assert [each.kind for each in outcomes] == [Kind.HANDLED] * 5
    return len(asked)


def test_a_handler_that_never_had_the_connection_costs_no_look_at_its_transaction_on_sql_server(desk, monkeypatch):
    endpoint = Endpoint("Sales")

    @endpoint.handles(TYPE, Order)
    def send_on(order, context):
        context.send(order, to="Billing", headers=HEADERS)

    assert looks(desk, endpoint, monkeypatch) == (0 if desk.database.engine == "sqlserver" else 5)
    assert sorted(desk.sent()) == [1, 2, 3, 4, 5]


def test_a_handler_that_had_the_connection_once_may_have_kept_it(desk, monkeypatch):
    endpoint, kept = Endpoint("Sales"), []

    @endpoint.handles(TYPE, Order)
    def keep(order, context):
        if order.number == 2:
            kept.append(context.connection)

    assert looks(desk, endpoint, monkeypatch) == (4 if desk.database.engine == "sqlserver" else 5)


def test_a_plain_function_has_the_connection(desk, monkeypatch):
    assert looks(desk, lambda message, connection: None, monkeypatch) == 5


@pytest.mark.parametrize(
    ("clock", "worked", "then"),
    [(0.5, 0.01, 4), (0.01, 0.01, 10), (0.5, 0.2, 2)],
    ids=["waiting counts a quarter", "short", "processor time counts"],
)
def test_the_next_batch_is_as_large_as_the_processor_time_of_the_last_one_allows(desk, clock, worked, then):
    desk.order(*range(8))
    pipeline = pipeline_with(desk.database, "Sales", desk.endpoint(), attempts=3, reconnect=desk.database.open_second)
    clocks = [iter((0.0, clock)), iter((0.0, worked))]
    batches = Batches(pipeline, BatchSize(10, 0.1, now=5), *(lambda times=times: next(times) for times in clocks))

    outcomes = batches.process()
    pipeline.close()

    assert len(outcomes) == 5
    assert batches.size.now == then
