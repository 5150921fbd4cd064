"""No message is lost when an operation fails after a handler has run, whichever operation, mode and error it is.

Each test lets a worker handle four messages, two of which fail, and makes one operation fail: the first one after the
first handler began, then the second one, and so on until no operation is left. Then each message must be in exactly one
place: its queue, the delayed table, the error queue, or handled, with the row that its handler wrote.
"""

import sys
import threading
from collections import Counter
from datetime import timedelta
from multiprocessing import Pipe

import pytest

from rowpost.database.connection import connect_url
from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import DatabaseError, DatabaseUnavailable, LockTimeout, LoginRefused
from rowpost.outbox.operations import Outbox
from rowpost.recoverability.policy import Decision, Recoverability
from rowpost.wire.message import OutgoingMessage
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.protocol import Assignment, Exit, ReceiveFailed
from rowpost.workers.worker import Worker
from tests.support.crashing import TYPE, Order, write
from tests.support.faults import Faults
from tests.support.probe import probe_for
from tests.support.workers import eventually

HEADERS = {"NServiceBus.EnclosedMessageTypes": TYPE}
NUMBERS = (1, 2, 3, 4)
LATER, HOPELESS = 2, 3  # what fails: for an hour, and for good
OPERATIONS = 200  # more than any run has


class Hopeless(ValueError):
    """Decided for by the policy."""


def decide(failure):
    if failure.attempts == 1:
        return Decision.RETRY
    return Decision.ERROR if isinstance(failure.error, Hopeless) else timedelta(hours=1)


def fail(number):
    if number in (LATER, HOPELESS):
        raise (Hopeless if number == HOPELESS else ValueError)(f"order {number} fails")


class Desk:
    """The queue Sales, and a worker for it whose operations can fail."""

    def __init__(self, queue, sql, target, monkeypatch):
        self.queue, self.sql, self.target, self.monkeypatch = queue, sql, target, monkeypatch
        self.business, self.others = sql, []
        self.batch, self.troubles = "off", []

    def empty(self):
        for name in ("Sales", "Sales.Delayed", "Billing", "error"):
            self.sql.empty(name)
        self.sql.run("DELETE FROM rowpost.failure")
        for each in (self.business, *self.others):
            each.run("DELETE FROM business")

    def plain(self, faults):
        def handle(message, connection):
            faults.arm()
            number = int(message.body[10:-1])
            write(connection, number)
            fail(number)

        return handle

    def endpoint(self, faults, **options):
        endpoint = Endpoint("Sales", recoverability=Recoverability(policy=decide), **options)

        @endpoint.handles(TYPE, Order)
        def handle(order, context):
            faults.arm()
            write(context.connection, order.number)
            for name in endpoint.participants:
                write(context.enlist(name), order.number)
            context.send(Order(order.number), to="Billing", headers=HEADERS)
            fail(order.number)

        return endpoint

    def work(self, handler, faults):
        """Send the messages, and let a worker handle them until the queue is empty."""
        self.queue.send_many(OutgoingMessage(b'{"Number":%d}' % number, HEADERS) for number in NUMBERS)
        self.monkeypatch.setattr(sys.modules[__name__], "handler", handler, raising=False)
        ours, theirs = Pipe()
        assignment = Assignment(
            settings=self.target.settings,
            queue="Sales",
            number=1,
            handler=f"{__name__}:handler",
            attempts=2,
            error_queue="error",
            receive=True,
            polls=True,
            breaker=CircuitBreaker(armed_wait=0.001, triggered_wait=0.001),
            batch=self.batch,
        )
        worker = Worker(assignment, theirs, connect=lambda *_, **__: faults.connect(self.target.connect))
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        eventually(lambda: not self._in("Sales") or not thread.is_alive(), "the queue is empty, or the worker died")
        ours.send(Exit())
        thread.join(20)
        assert not thread.is_alive()
        while ours.poll():
            try:
                report = ours.recv()
            except EOFError:
                break
            if isinstance(report, ReceiveFailed):
                self.troubles.append(report.error)
        ours.close()
        theirs.close()

    def ledger(self):
        """How often each message is anywhere, and how often it was handled."""
        waiting = Counter(self._in("Sales") + self._in("Sales.Delayed") + self._in("error"))
        handled = Counter(row[0] for row in self.business.run("SELECT number FROM business"))
        return waiting, handled

    def _in(self, table):
        return [int(bytes(row[0])[10:-1]) for row in self.sql.run(f"SELECT body FROM {self.sql.table(table)}")]

    def check(self, *, sends=True, resends=False):
        waiting, handled = self.ledger()
        assert {number: waiting[number] + handled[number] for number in NUMBERS} == dict.fromkeys(NUMBERS, 1)
        assert (handled[LATER], handled[HOPELESS]) == (0, 0)
        for each in self.others:
            assert Counter(row[0] for row in each.run("SELECT number FROM business")) == handled
        sent = Counter(self._in("Billing"))
        if resends:
            assert sent.keys() >= handled.keys()
        else:
            assert sent == (handled if sends else Counter())


@pytest.fixture
def desk(queue, sql, target, monkeypatch):
    sql.run("DROP TABLE IF EXISTS business")
    sql.run("CREATE TABLE business (number integer NOT NULL)")
    made = Desk(queue, sql, target, monkeypatch)
    made.empty()
    return made


#: the errors, and how many operations in a row they make fail; the first two are tried in every mode
ERRORS = {
    "lock timeout": (LockTimeout, 1),
    "our defect": (RuntimeError, 1),
    "disk full": (DatabaseError, 1),
    "login refused": (LoginRefused, 1),
    "unavailable": (DatabaseUnavailable, 1),
    "disk full for a time": (DatabaseError, 3),
}


def errors(count=2):
    return pytest.mark.parametrize(("error", "burst"), list(ERRORS.values())[:count], ids=list(ERRORS)[:count])


def every_operation(desk, make_handler, error, burst, **how):
    """Let each operation after the first handler fail in turn, and compare the ledger."""
    for place in range(1, OPERATIONS):
        desk.empty()
        desk.troubles.clear()
        faults = Faults(lambda: error("injected"), place, burst)
        desk.work(make_handler(faults), faults)
        if not faults.names:
            assert place > 10
            return
        try:
            desk.check(**how)
            if any("record_failure" in name for name in faults.names):
                assert any(error.__name__ in trouble for trouble in desk.troubles)  # a lock timeout too is reported
        except AssertionError as wrong:
            raise AssertionError(f"{faults.names} failed at {place}: {wrong}") from None
    raise AssertionError(f"more than {OPERATIONS} operations")


@errors()
@pytest.mark.promise("failed-bookkeeping-loses-nothing")
def test_a_plain_handlers_messages_are_not_lost(desk, error, burst):
    every_operation(desk, desk.plain, error, burst, sends=False)


@errors(len(ERRORS))
@pytest.mark.promise("failed-bookkeeping-loses-nothing")
def test_an_endpoints_messages_are_not_lost(desk, error, burst):
    every_operation(desk, desk.endpoint, error, burst)


@errors()
@pytest.mark.parametrize("mode", ["receive_only", "transaction_scope"])
@pytest.mark.promise("failed-bookkeeping-loses-nothing")
def test_the_messages_of_another_mode_are_not_lost(desk, error, burst, mode):
    resends = mode == "receive_only"  # it sends before it removes the message
    every_operation(desk, lambda faults: desk.endpoint(faults, transaction_mode=mode), error, burst, resends=resends)


@errors()
@pytest.mark.promise("failed-bookkeeping-loses-nothing")
def test_the_messages_of_a_batch_are_not_lost(desk, error, burst):
    desk.batch = 3
    every_operation(desk, desk.endpoint, error, burst)


@errors()
@pytest.mark.parametrize("pessimistic", [False, True])
@pytest.mark.promise("failed-bookkeeping-loses-nothing")
def test_the_messages_of_an_outbox_are_not_lost(desk, error, burst, business_url, target, pessimistic):
    def make(faults):
        for table in ("rowpost.outbox", "rowpost.outbox_operations"):
            desk.business.run(f"DELETE FROM {table}")
        outbox = Outbox("business", pessimistic, business_url)
        return desk.endpoint(faults, transaction_mode="receive_only", outbox=outbox)

    with connect_url(target.settings.engine, business_url) as database:
        desk.business = probe_for(database, babelfish=target.babelfish)
        every_operation(desk, make, error, burst)
