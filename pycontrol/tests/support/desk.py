"""A worker for the queue Sales whose operations can fail, and the ledger of what became of its messages.

`every_operation` lets the worker handle four messages, two of which fail, and makes one operation fail: the first one after the first
handler began, then the second one, and so on until no operation is left. Then each message must be in exactly one place: its queue, the
delayed table, the error queue, or handled, with the row that its handler wrote.
"""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from multiprocessing import Pipe

from rowpost.endpoint.endpoint import Endpoint
from rowpost.recoverability.policy import Decision, Recoverability
from rowpost.settings.worker import FunctionRetries
from rowpost.wire.message import OutgoingMessage
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.protocol import Assignment, Exit, ReceiveFailed
from rowpost.workers.worker.channel import PipeChannel
from rowpost.workers.worker.worker import Worker
from tests.support.crashing import TYPE, Order, write
from tests.support.faults import Faults
from tests.support.workers import eventually

__all__ = ["Desk", "every_operation"]

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

    def __init__(self, queue, sql, target):
        self.queue, self.sql, self.target = queue, sql, target
        self.business, self.others = sql, []
        self.batch, self.troubles = "off", []
        #: resolves what a run has left in doubt
        self.recover = lambda: None

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
        globals()["handler"] = handler  # what the worker imports
        ours, theirs = Pipe()
        assignment = Assignment(
            settings=self.target.settings,
            queue="Sales",
            number=1,
            handler=f"{__name__}:handler",
            retries=None if isinstance(handler, Endpoint) else FunctionRetries(2),
            error_queue="error",
            receive=True,
            polls=True,
            breaker=CircuitBreaker(armed_wait=0.001, triggered_wait=0.001),
            batch=self.batch,
        )
        worker = Worker(assignment, PipeChannel(theirs), connect=lambda *_, **__: faults.connect(self.target.connect))
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
        self.recover()
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


def every_operation(desk, make_handler, error, burst, *, reported=None, **how) -> int:
    """Let each operation after the first handler fail in turn, and compare the ledger. Return how many operations failed.

    Args:
        error: makes the error; see `Faults`.
        burst: how many operations in a row fail.
        reported: the class of the error that is reported if a failure could not be counted.
    """
    injected = 0
    for place in range(1, OPERATIONS):
        desk.empty()
        desk.troubles.clear()
        faults = Faults(error, place, burst)
        desk.work(make_handler(faults), faults)
        if not faults.names:
            assert place > 10
            return injected
        injected += len(faults.names)
        try:
            desk.check(**how)
            if reported and any("record_failure" in name for name in faults.names):
                assert any(reported in trouble for trouble in desk.troubles)  # a lock timeout too is reported
        except AssertionError as wrong:
            raise AssertionError(f"{faults.names} failed at {place}: {wrong}") from None
    raise AssertionError(f"more than {OPERATIONS} operations")
