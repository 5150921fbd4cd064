"""Messages that are handled by a lease, on every engine that can be reached."""

import logging
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import pytest

from rowpost.database.pool import Connections
from rowpost.deploy.entries import describe_queue
from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import (
    HandlerBrokeTransaction,
    HandlerEnded,
    InvalidMessage,
    LeaseLost,
    QueueNotFound,
    RowpostError,
    SettingsError,
)
from rowpost.pipeline.lease import Leasing
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.leases import LeaseRetries
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.settings.environment import QueueSettings
from rowpost.transport.queue import Queue
from tests.support.crashing import write
from tests.support.workers import eventually

TYPE = "Shop.Messages.Order"
HEADERS = {"NServiceBus.EnclosedMessageTypes": TYPE}
AT_ONCE = Recoverability(immediate_retries=0, delayed_retries=0)


@dataclass(frozen=True)
class Order:
    number: int


class Desk:
    """The queue Sales, whose endpoint leases its messages, and what became of them."""

    def __init__(self, database, sql, queue):
        self.database, self.sql, self.queue = database, sql, queue
        names = describe_queue(QueueSettings("Sales"), database.engine).placeholders(database.dialect)
        self.table = names["leased_table"]
        self.opened = []

    def pipeline(self, handle, *, seconds=60, **options):
        """Return a pipeline of an endpoint with this handler."""
        endpoint = Endpoint("Sales", receive="lease", **options)
        endpoint.handles(TYPE, Order)(handle)
        leasing = Leasing(Connections(self.database.open_second), "Sales", seconds)
        pipeline = Pipeline(
            leasing.connection(), "Sales", endpoint, reconnect=self.database.open_second, leasing=leasing
        )
        self.opened.append((pipeline, leasing))
        return pipeline

    def send(self, number=1):
        self.queue.send(b'{"number":%d}' % number, HEADERS)

    def run(self, handle, **options):
        """Send an order and handle it."""
        self.send()
        return self.pipeline(handle, **options).process_one()

    def expire(self):
        self.sql.run(f"UPDATE {self.table} SET due = '2024-01-01'")

    def take_away(self):
        """Let all leases expire, and return their messages, as a supervisor does."""
        self.expire()
        assert self.database.call_atomically("return_expired", "Sales", count=10)

    @property
    def leases(self):
        return self.database.call("list_leases", "Sales", count=100)

    @property
    def business(self):
        return [row[0] for row in self.sql.run("SELECT number FROM business ORDER BY number")]

    def bodies(self, name):
        return [message.body for message in Queue(name, self.database).browse(100)]

    def attempts(self):
        return [row[0] for row in self.sql.run("SELECT attempts FROM rowpost.failure")]


@pytest.fixture
def desk(database, sql, queue):
    desk = Desk(database, sql, queue)
    sql.run("DROP TABLE IF EXISTS business")
    sql.run("CREATE TABLE business (number integer NOT NULL)")
    sql.run("DELETE FROM rowpost.failure")
    sql.run(f"DELETE FROM {desk.table}")
    for name in ("Billing", "error", "audit"):
        sql.empty(name)
    yield desk
    for pipeline, leasing in desk.opened:
        with suppress(RowpostError):
            pipeline.close()
        leasing.close()


def sends(order, context):
    context.send(order, to="Billing", headers=HEADERS)


def fails(order, context):
    raise ValueError("no such order")


# ------------------------------------------------------------------ a handler that returns
def test_a_handled_message_is_removed_and_what_was_sent_is_stored(desk):
    outcome = desk.run(sends)

    assert outcome.kind is Kind.HANDLED
    assert (desk.bodies("Billing"), desk.queue.peek(), desk.leases) == ([b'{"Number":1}'], 0, [])


def test_an_empty_queue_leases_nothing(desk):
    assert desk.pipeline(sends).process_one().kind is Kind.EMPTY


def test_a_message_is_leased_while_its_handler_works_and_no_connection_is_in_use(desk):
    seen = []

    def handle(order, context):
        (pipeline, leasing), = desk.opened  # fmt: skip
        seen.append(([row.owner for row in desk.leases], desk.queue.peek(), leasing.connections.idle))

    desk.run(handle)

    (owner,), waiting, idle = seen[0]
    assert owner.rpartition("/")[2] == "1"
    assert (waiting, idle) == (0, 1)


@pytest.mark.promise("lease-holds-nothing")
def test_no_transaction_is_open_while_a_handler_works(desk, target):
    if target.settings.engine == "postgresql":
        text = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL"
            " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"  # and not autovacuum
        )
    else:
        text = "SELECT COUNT(*) FROM sys.dm_exec_sessions WHERE open_transaction_count > 0 AND session_id <> @@SPID AND database_id = DB_ID()"
    seen = []

    desk.run(lambda order, context: seen.append(desk.sql.value(text)))

    assert seen == [0]


def test_what_the_pool_keeps_is_closed_when_nobody_borrows_it(desk):
    connections = Connections(desk.database.open_second, idle_seconds=0.05)

    with connections.borrow() as first, connections.borrow():
        pass

    eventually(lambda: connections.idle == 0, "the idle connections are closed")
    assert first.closed
    with connections.borrow() as again:
        assert again.call("peek_queue", "Sales", count=1)
    connections.close()


def test_a_pool_opens_no_more_connections_than_its_limit_and_drops_broken_ones(desk):
    connections = Connections(desk.database.open_second, limit=1)
    order, inside = [], threading.Event()

    def second():
        inside.set()
        with connections.borrow():
            order.append("second")

    with connections.borrow() as first:
        thread = threading.Thread(target=second)
        thread.start()
        inside.wait(20)
        order.append("first")
        first.begin()
    thread.join(20)

    with connections.borrow() as again:
        assert again is first
        assert not again.in_transaction
        again.raw_connection.close()
    with connections.borrow() as other:
        assert other is not first
    assert order == ["first", "second"]
    connections.close()


# ------------------------------------------------------------------ context.commit()
def test_a_commit_stores_what_the_block_writes_and_what_was_sent(desk):
    seen = []

    def handle(order, context):
        sends(order, context)
        with context.commit() as connection:
            write(connection, order.number)
            context.send(Order(2), to="Billing", headers=HEADERS)
        seen.append((desk.business, len(desk.bodies("Billing")), desk.leases))

    outcome = desk.run(handle)

    assert outcome.kind is Kind.HANDLED
    assert seen == [([1], 2, [])]
    assert (desk.business, len(desk.bodies("Billing")), desk.queue.peek()) == ([1], 2, 0)


def test_an_audit_copy_commits_with_the_message(desk):
    def handle(order, context):
        with context.commit():
            pass
        assert len(desk.bodies("audit")) == 1

    assert desk.run(handle, audit_queue="audit").kind is Kind.HANDLED
    assert desk.run(sends, audit_queue="audit").kind is Kind.HANDLED
    assert len(desk.bodies("audit")) == 2


def test_nothing_is_sent_after_a_commit_and_nothing_is_committed_twice(desk):
    refused = []

    def handle(order, context):
        with context.commit():
            pass
        for attempt in (
            lambda: sends(order, context),
            lambda: context.send(order, to="Billing", headers=HEADERS, immediate=True),
            lambda: context.forward_current_message_to("Billing"),
            lambda: context.commit().__enter__(),
        ):
            with pytest.raises(HandlerEnded):
                attempt()
            refused.append(1)

    assert desk.run(handle).kind is Kind.HANDLED
    assert (len(refused), desk.bodies("Billing")) == (4, [])


def test_a_block_that_raises_commits_nothing_and_the_message_is_still_leased(desk):
    seen = []

    def handle(order, context):
        sends(order, context)
        with suppress(ZeroDivisionError), context.commit() as connection:
            write(connection, order.number)
            raise ZeroDivisionError
        seen.append((desk.business, desk.bodies("Billing"), len(desk.leases)))
        with context.commit() as connection:
            write(connection, 5)

    assert desk.run(handle).kind is Kind.HANDLED
    assert seen == [([], [], 1)]
    assert (desk.business, len(desk.bodies("Billing"))) == ([5], 1)


def test_a_handler_that_fails_after_its_commit_has_handled_the_message(desk, caplog):
    def handle(order, context):
        with context.commit() as connection:
            write(connection, order.number)
        raise ValueError("later")

    assert desk.run(handle).kind is Kind.HANDLED
    assert (desk.business, desk.queue.peek(), desk.attempts()) == ([1], 0, [])
    assert "failed after context.commit()" in caplog.text


def test_a_commit_that_cannot_send_fails_the_attempt_and_commits_nothing(desk):
    def handle(order, context):
        context.send(order, to="Nowhere", headers=HEADERS)
        with context.commit() as connection:
            write(connection, order.number)

    outcome = desk.run(handle)

    assert (outcome.kind, desk.business, desk.queue.peek(), desk.attempts()) == (Kind.FAILED, [], 1, [1])


def test_a_handler_may_not_end_the_transaction_of_its_commit(desk, target):
    def handle(order, context):
        with context.commit() as connection:
            write(connection, order.number)
            connection.commit() if target.settings.engine == "postgresql" else connection.execute("COMMIT")

    outcome = desk.run(handle, recoverability=AT_ONCE)

    (copy,) = Queue("error", desk.database).browse(10)
    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert copy.headers["NServiceBus.ExceptionInfo.ExceptionType"].endswith(HandlerBrokeTransaction.__name__)
    assert (desk.queue.peek(), desk.leases) == (0, [])


def test_plain_sql_that_commits_moves_the_message_to_the_error_queue(desk):
    def handle(order, context):
        with context.commit() as connection:
            write(connection, order.number)
            connection.execute("COMMIT")

    outcome = desk.run(handle)

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert (desk.business, len(desk.bodies("error")), desk.queue.peek(), desk.leases) == ([1], 1, 0, [])


# ------------------------------------------------------------------ what is refused within a handler
def test_a_connection_outside_of_the_commit_is_refused_with_what_to_do(desk):
    def handle(order, context):
        with pytest.raises(SettingsError, match=r"context\.commit\(\) as connection"):
            context.connection  # noqa: B018
        with pytest.raises(SettingsError, match=r"context\.commit\(\) as connection"):
            context.enlist("shop")
        with pytest.raises(InvalidMessage):
            context.request(order)

    assert desk.run(handle).kind is Kind.HANDLED


def test_immediate_sends_need_no_commit(desk):
    def handle(order, context):
        context.send(order, to="Billing", headers=HEADERS, immediate=True)
        assert len(desk.bodies("Billing")) == 1
        raise ValueError("no")

    assert desk.run(handle).kind is Kind.FAILED
    assert len(desk.bodies("Billing")) == 1


def test_a_commit_is_for_leased_messages_only(desk, target):
    endpoint = Endpoint("Sales")

    @endpoint.handles(TYPE, Order)
    def handle(order, context):
        context.progress(0.5, "half")
        with pytest.raises(SettingsError, match="receive='lease'"), context.commit():
            pass

    desk.send()
    pipeline = endpoint.pipeline(desk.database, "Sales")

    assert pipeline.process_one().kind is Kind.HANDLED


# ------------------------------------------------------------------ a handler that fails
def test_a_failed_attempt_is_counted_and_the_message_is_back_in_its_place(desk):
    outcome = desk.run(lambda order, context: (sends(order, context), fails(order, context)))

    assert (outcome.kind, outcome.attempts) == (Kind.FAILED, 1)
    assert (desk.queue.peek(), desk.leases, desk.bodies("Billing"), desk.attempts()) == (1, [], [], [1])


def test_the_last_attempt_moves_the_message_to_the_error_queue(desk):
    desk.send()
    pipeline = desk.pipeline(fails, recoverability=Recoverability(immediate_retries=1, delayed_retries=0))

    outcomes = [pipeline.process_one() for _ in range(3)]

    assert [each.kind for each in outcomes] == [Kind.FAILED, Kind.MOVED_TO_ERROR, Kind.EMPTY]
    (copy,) = Queue("error", desk.database).browse(10)
    assert copy.headers["NServiceBus.ExceptionInfo.Message"] == "no such order"
    assert (desk.queue.peek(), desk.leases, desk.attempts()) == (0, [], [])


def test_a_delayed_retry_waits_in_the_delayed_table(desk):
    outcome = desk.run(fails, recoverability=Recoverability(0, 1, timedelta(hours=1)))

    waiting = desk.database.call("browse_delayed", "Sales", count=10)
    desk.sql.run(
        f"DELETE FROM {describe_queue(QueueSettings('Sales'), desk.database.engine).placeholders(desk.database.dialect)['delayed_table']}"
    )
    assert (outcome.kind, len(waiting), desk.queue.peek(), desk.leases) == (Kind.DELAYED, 1, 0, [])


def test_a_message_that_succeeds_after_a_failure_leaves_no_count(desk):
    desk.send()
    attempts = iter([fails, sends])
    pipeline = desk.pipeline(lambda order, context: next(attempts)(order, context))

    assert [pipeline.process_one().kind for _ in range(2)] == [Kind.FAILED, Kind.HANDLED]
    assert desk.attempts() == []


def test_a_message_that_cannot_be_moved_stays_counted_in_its_queue(desk):
    outcome = desk.run(fails, recoverability=AT_ONCE, error_queue="Nowhere")

    assert (outcome.kind, desk.queue.peek(), desk.leases, desk.attempts()) == (Kind.UNMOVABLE, 1, [], [1])
    assert "Nowhere" in outcome.error


def test_a_policy_that_fails_leaves_the_message_in_its_queue(desk):
    def policy(failure):
        raise RuntimeError("no decision")

    outcome = desk.run(fails, recoverability=Recoverability(policy=policy))

    assert (outcome.kind, desk.queue.peek(), desk.leases) == (Kind.UNMOVABLE, 1, [])


def test_a_message_with_corrupt_headers_moves_to_the_error_queue_unchanged(desk):
    desk.database.call("send_message", "Sales", headers="no json", body=b"x")

    outcome = desk.pipeline(sends).process_one()

    assert (outcome.kind, desk.bodies("error"), desk.leases) == (Kind.CORRUPT, [b"x"], [])


def test_an_expired_message_is_dropped(desk):
    desk.queue.send(b"{}", HEADERS, time_to_be_received=timedelta(milliseconds=1))
    desk.sql.wait_until_expired("Sales")

    assert desk.pipeline(sends).process_one().kind is Kind.EXPIRED
    assert (desk.leases, desk.queue.peek()) == ([], 0)


# ------------------------------------------------------------------ a lease that is lost
@pytest.mark.parametrize("end", ["return", "commit", "failure"])
@pytest.mark.promise("lost-lease-commits-nothing")
def test_the_late_holder_of_a_lost_lease_commits_and_counts_nothing(desk, caplog, end):
    def handle(order, context):
        sends(order, context)
        desk.take_away()
        if end == "failure":
            raise ValueError("no")
        if end == "commit":
            with context.commit() as connection:
                write(connection, order.number)

    outcome = desk.run(handle)

    assert outcome.kind is Kind.DEADLOCKED
    assert (desk.business, desk.bodies("Billing"), desk.queue.peek(), desk.attempts()) == ([], [], 1, [])
    assert "was lost" in caplog.text


def test_a_handler_that_catches_the_loss_commits_nothing_all_the_same(desk):
    def handle(order, context):
        sends(order, context)
        desk.take_away()
        with pytest.raises(LeaseLost), context.commit():
            pass

    assert desk.run(handle).kind is Kind.DEADLOCKED
    assert (desk.bodies("Billing"), desk.queue.peek()) == ([], 1)


def test_an_expired_lease_is_a_counted_attempt_and_others_handle_the_message(desk):
    seen = []

    def first(order, context):
        desk.expire()
        other.return_expired()
        seen.append(other.process_one().kind)

    other = desk.pipeline(sends)
    desk.send()
    outcome = desk.pipeline(first).process_one()

    assert (seen, outcome.kind) == ([Kind.HANDLED], Kind.DEADLOCKED)
    assert (desk.queue.peek(), len(desk.bodies("Billing")), desk.bodies("error")) == (0, 1, [])


def test_an_expired_lease_of_the_last_attempt_moves_the_message_to_the_error_queue(desk):
    def handle(order, context):
        desk.expire()
        other.return_expired()

    other = desk.pipeline(sends, recoverability=AT_ONCE)
    desk.send()
    outcome = desk.pipeline(handle).process_one()

    (copy,) = Queue("error", desk.database).browse(10)
    assert outcome.kind is Kind.DEADLOCKED
    assert copy.headers["NServiceBus.ExceptionInfo.ExceptionType"] == "builtins.TimeoutError"
    assert (desk.queue.peek(), desk.leases) == (0, [])


def test_an_expired_lease_of_a_corrupt_message_returns_to_be_moved_by_its_receiver(desk):
    desk.database.call("send_message", "Sales", headers="no json", body=b"x")
    desk.database.call_atomically("lease_messages", "Sales", count=1, owner="h/1/1", seconds=60)
    desk.expire()
    pipeline = desk.pipeline(sends)

    pipeline.return_expired()

    assert (desk.queue.peek(), pipeline.process_one().kind) == (1, Kind.CORRUPT)


# ------------------------------------------------------------------ renewals and progress
def test_a_lease_is_renewed_and_its_progress_is_stored(desk):
    def handle(order, context):
        before = desk.leases[0]
        context.progress(0.4, "page 4 of 10")
        renewed = eventually(lambda: [row for row in desk.leases if row.due > before.due], "a renewal")
        eventually(lambda: desk.leases[0].progress_text == "page 4 of 10", "the progress")
        assert (desk.leases[0].progress_percent, len(renewed)) == (40, 1)
        assert not context.stopping

    assert desk.run(handle, seconds=1).kind is Kind.HANDLED


def test_a_handler_learns_from_the_renewals_that_its_lease_is_lost(desk):
    def handle(order, context):
        desk.take_away()
        eventually(lambda: context.stopping, "the loss")

    assert desk.run(handle, seconds=1).kind is Kind.DEADLOCKED


def test_the_leases_of_several_pipelines_are_renewed_together(desk, needs_readpast):
    leasing = Leasing(Connections(desk.database.open_second), "Sales", 1)
    endpoint = Endpoint("Sales", receive="lease")
    both, looking = threading.Barrier(2), threading.Lock()

    def shown():
        with looking:  # both handlers use one connection
            return sorted(row.progress_percent or 0 for row in desk.leases)

    @endpoint.handles(TYPE, Order)
    def handle(order, context):
        context.progress(order.number / 10)
        both.wait(20)
        eventually(lambda: shown() == [10, 20], "the progress")
        both.wait(20)

    desk.send(1)
    desk.send(2)
    kinds = []

    def work():
        kinds.append(Pipeline(leasing.connection(), "Sales", endpoint, leasing=leasing).process_one().kind)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    leasing.close()

    assert kinds == [Kind.HANDLED] * 2


@pytest.mark.parametrize(
    ("fraction", "text"), [(1.1, ""), (-0.1, ""), (float("nan"), ""), ("x", ""), (True, ""), (0.5, 5)]
)
def test_what_is_no_progress_is_refused(desk, fraction, text):
    def handle(order, context):
        with pytest.raises(InvalidMessage):
            context.progress(fraction, text)

    assert desk.run(handle).kind is Kind.HANDLED


def test_a_renewal_that_fails_is_tried_again(desk, caplog):
    caplog.set_level(logging.WARNING, "rowpost")
    real = desk.database.open_second
    state = {"down": False}

    def connect():
        if state["down"]:
            state["down"] = False
            raise RowpostError("down")
        return real()

    leasing = Leasing(Connections(connect, idle_seconds=0.0), "Sales", 1)
    endpoint = Endpoint("Sales", receive="lease")

    @endpoint.handles(TYPE, Order)
    def handle(order, context):
        due = desk.leases[0].due
        state["down"] = True
        eventually(lambda: "were not renewed" in caplog.text, "a renewal that fails")
        eventually(lambda: desk.leases[0].due > due, "the next one")

    desk.send()
    pipeline = Pipeline(leasing.connection(), "Sales", endpoint, leasing=leasing)

    assert pipeline.process_one().kind is Kind.HANDLED
    leasing.close()


# ------------------------------------------------------------------ a process that died
def test_the_lease_of_a_dead_process_is_counted_at_once(desk):
    desk.send()
    row = desk.database.call_atomically("lease_messages", "Sales", count=1, owner="h/7/1", seconds=60)[0]
    retries = retries_of(desk)

    outcome = retries.crashed(desk.database, row[0], row[1], ChildProcessError("died"), "h/7/")

    assert (outcome.kind, outcome.attempts, desk.queue.peek(), desk.leases) == (Kind.FAILED, 1, 1, [])


def test_a_message_that_another_process_has_leased_meanwhile_is_left_alone(desk):
    desk.send()
    row = desk.database.call_atomically("lease_messages", "Sales", count=1, owner="h/8/1", seconds=60)[0]

    outcome = retries_of(desk).crashed(desk.database, row[0], row[1], ChildProcessError("died"), "h/7/")

    assert (outcome.kind, len(desk.leases), desk.attempts()) == (Kind.EMPTY, 1, [])


def test_a_message_of_a_transaction_is_counted_as_in_any_queue(desk):
    desk.send()
    message = desk.queue.browse(1)[0]

    outcome = retries_of(desk).crashed(
        desk.database, message.id, message.row_version, ChildProcessError("died"), "h/7/"
    )

    assert (outcome.kind, outcome.attempts, desk.queue.peek()) == (Kind.FAILED, 1, 1)


def retries_of(desk):
    return LeaseRetries("Sales", "Sales", address="Sales", recoverability=Recoverability(), error_queue="error")


# ------------------------------------------------------------------ in a program
def test_a_program_handles_leased_messages_without_a_supervisor(desk):
    seen = []
    endpoint = Endpoint("Leasing", receive="lease", lease_time=timedelta(seconds=30))

    @endpoint.handles(TYPE, Order)
    def handle(order, context):
        seen.append(order.number)

    with endpoint.open() as bus:
        bus.send_local(b'{"number":7}', headers=HEADERS)
    kinds = [endpoint.process_one().kind for _ in range(2)]
    endpoint.close()

    assert (kinds, seen) == ([Kind.HANDLED, Kind.EMPTY], [7])


def test_a_queue_without_a_table_of_leases_says_what_to_do(desk, target):
    endpoint = Endpoint("Billing", receive="lease")

    with pytest.raises(QueueNotFound, match=r"Billing: \{lease: true\}"):
        endpoint.process_one(desk.database)
    endpoint.close()


def test_a_shared_connection_is_refused(desk):
    from rowpost.database.connection import Connection

    with pytest.raises(SettingsError, match="connections of its own"):
        Endpoint("Sales", receive="lease").process_one(Connection.share(desk.database.raw_connection))


# ------------------------------------------------------------------ leases of some types
@pytest.fixture
def mixed(desk):
    """An endpoint whose orders are leased and whose notes are not; both write into the table `business`."""
    endpoint = Endpoint("Sales", recoverability=AT_ONCE)
    seen = []

    @endpoint.handles(TYPE, Order, receive="lease")
    def handle(order, context):
        seen.append(("leased", len(desk.leases)))
        if order.number < 0:
            raise ValueError("no")
        with context.commit() as connection:
            write(connection, order.number)

    @endpoint.handles("Shop.Messages.Note")
    def note(body, context):
        seen.append(("in a transaction", len(desk.leases)))
        write(context.connection, 9)

    pipeline = endpoint.pipeline(desk.database, "Sales")
    yield pipeline, seen
    pipeline.retries.close_second()
    endpoint.close()


def test_messages_of_one_type_are_leased_and_the_others_are_not(desk, mixed):
    pipeline, seen = mixed
    desk.send(1)
    desk.queue.send(b"{}", {"NServiceBus.EnclosedMessageTypes": "Shop.Messages.Note"})

    kinds = [pipeline.process_one().kind for _ in range(3)]

    assert kinds == [Kind.HANDLED, Kind.HANDLED, Kind.EMPTY]
    assert seen == [("leased", 1), ("in a transaction", 0)]
    assert (desk.business, desk.leases, desk.queue.peek()) == ([1, 9], [], 0)
    assert not pipeline.allows_batches


def test_a_failed_attempt_at_a_leased_type_is_treated_as_any_other(desk, mixed):
    pipeline, _ = mixed
    desk.send(-1)

    assert pipeline.process_one().kind is Kind.MOVED_TO_ERROR
    assert (desk.leases, desk.queue.peek(), len(desk.bodies("error"))) == ([], 0, 1)


def test_a_message_of_a_type_that_nobody_handles_fails_as_in_any_endpoint(desk, mixed):
    pipeline, _ = mixed
    desk.queue.send(b"{}", {"NServiceBus.EnclosedMessageTypes": "Shop.Messages.Unknown"})

    assert pipeline.process_one().kind is Kind.MOVED_TO_ERROR
    assert (desk.leases, len(desk.bodies("error"))) == ([], 1)
