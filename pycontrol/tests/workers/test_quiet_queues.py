"""Queues that have no worker while they have no work, and the warm process that takes their first messages."""

import os
import signal
from dataclasses import replace

import pytest

from rowpost.settings.environment import QueueSettings, WorkerSettings
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage
from rowpost.workers import events
from rowpost.workers.protocol import Assignment, EndpointsSubscribed, Imported, Returned, WorkerProgress
from rowpost.workers.supervision.pool import ADOPT_AT
from rowpost.workers.supervision.warm import ADOPT_AFTER_S, WAIT_S, IdleWorkers, WarmProcess
from tests.support.endpoints import handled_table  # noqa: F401
from tests.support.pool_history import History, Process
from tests.support.workers import Running, concurrent, running


@pytest.fixture
def queues(shop):
    """Three queues whose worker notes its process; none keeps a worker."""
    return Queues(shop)


class Queues:
    def __init__(self, shop):
        self.shop = shop
        self.names = [shop.name, shop.make_queue().name, shop.make_queue().name]

    def settings(self, handler="note_process", *, idle_workers=0, others=(), **options):
        settings = self.shop.settings(handler, idle_workers=idle_workers, **options)
        more = (self.shop.worked(name, handler, **options) for name in self.names[1:])
        return replace(settings, queues=(*settings.queues, *more, *others))

    def run(self, handler="note_process", **options):
        return Running(self.settings(handler, **options))

    def send(self, name, body=b"{}", count=1):
        Queue(name, self.shop.queue.database).send_many([OutgoingMessage(body)] * count)

    def noted(self):
        """Return the process and the session that each message was handled in."""
        return [tuple(map(int, bytes(row[0]).split())) for row in self.shop.sql.run("SELECT body FROM handled")]


@pytest.mark.promise("quiet-queues")
def test_one_process_takes_the_first_messages_of_all_queues_each_in_a_session_of_its_own(queues):
    with queues.run() as run:
        for number, name in enumerate(queues.names, 1):
            queues.send(name)
            run.until(lambda number=number: queues.shop.handled() == number, "the message is handled")
        run.until(lambda: all(run.workers(name) == 0 for name in queues.names), "no queue has a worker")

    noted = queues.noted()
    assert len({process for process, _ in noted}) == 1
    assert len({session for _, session in noted}) == 3
    assert run.seen(events.WorkerStarted) == run.seen(events.WorkerStopped) == []


@pytest.mark.promise("quiet-queues")
def test_a_queue_without_work_has_no_worker_and_no_session(queues):
    with queues.run() as run:
        queues.send(queues.names[0])
        run.until(lambda: queues.shop.handled() == 1, "the warm process is there")
        run.until(lambda: run.workers(queues.names[0]) == 0, "it was returned")

        assert [queue.workers for queue in run.supervisor.snapshot().queues] == [0, 0, 0]


@concurrent
@pytest.mark.promise("busy-queue-adopts")
def test_a_queue_keeps_a_process_that_works_for_long_and_the_others_get_another_one(queues, tmp_path):
    gate = tmp_path / "gate"
    first, second, _ = queues.names
    with queues.run("wait_for_file") as run:
        queues.send(first, str(gate).encode())
        run.until(lambda: run.seen(events.WorkerStarted, first), "the queue has made it its own")
        (tmp_path / "open").touch()
        queues.send(second, str(tmp_path / "open").encode())
        run.until(lambda: running(tmp_path / "open") == 1, "the message of another queue is handled meanwhile")
        gate.touch()
        run.until(lambda: queues.shop.handled() == 2, "both are handled")
        run.until(lambda: run.seen(events.WorkerStopped, first), "after the idle time the process exits")

    (stopped,) = run.seen(events.WorkerStopped, first)
    assert (stopped.reason, stopped.pid) == ("spare", run.seen(events.WorkerStarted, first)[0].pid)
    assert queues.shop.handled_twice() == 0


@concurrent
@pytest.mark.promise("busy-queue-adopts")
def test_a_burst_gets_as_many_workers_as_ever(queues, tmp_path):
    gate = tmp_path / "gate"
    with queues.run("wait_for_file", limit=3) as run:
        queues.send(queues.names[1], str(gate).encode(), 9)
        run.until(lambda: running(gate) == 3, "as many handlers as the limit")
        gate.touch()
        run.until(lambda: queues.shop.handled() == 9, "all are handled")
        run.until(lambda: run.workers(queues.names[1]) == 0, "no worker is left")

    assert queues.shop.handled_twice() == 0


@pytest.mark.promise("one-worker-when-idle")
def test_the_queues_that_had_work_last_keep_a_worker(queues):
    first, second, third = queues.names
    with queues.run("slow", idle_workers=1) as run:
        run.until(lambda: run.seen(events.WorkerStarted, first), "the first queue has a worker")
        queues.send(second, str(2 * ADOPT_AFTER_S).encode())
        run.until(lambda: run.seen(events.WorkerStarted, second), "the second queue has one")
        run.until(lambda: run.seen(events.WorkerStopped, first), "the first one's has exited")

        assert [run.workers(name) for name in (first, third)] == [0, 0]
        assert run.seen(events.WorkerStopped, first)[0].reason == "spare"


def test_a_handler_that_cannot_be_imported_stops_its_queue_alone(queues):
    broken = queues.shop.worked(queues.shop.make_queue().name, "missing")
    with Running(queues.settings(others=(broken,))) as run:
        run.until(lambda: run.seen(events.Critical, broken.name), "the refusal")
        queues.send(queues.names[2])
        run.until(lambda: queues.shop.handled() == 1, "the other queues' messages are handled")

    assert "has no 'missing'" in run.seen(events.Critical)[0].error


def test_the_supervisor_ends_if_no_handler_can_be_imported(queues):
    with queues.run("missing") as run:
        error = run.ended()

    assert str(error).count("has no 'missing'") == 3


@concurrent
def test_a_handler_that_kills_the_warm_process_is_counted_and_another_process_takes_its_place(queues):
    with queues.run("die", attempts=2) as run:
        queues.send(queues.names[1], b"bad")
        run.until(lambda: len(queues.shop.errors()) == 1, "the message is in the error queue")
        (moved,) = run.until(lambda: run.seen(events.MovedToError, queues.names[1]), "the event")

    assert moved.attempts == 2
    assert len(run.seen(events.WorkerDied, queues.names[1])) == 2
    assert queues.shop.depth(queues.names[1]) == 0


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_another_process_takes_the_place_of_one_that_was_killed_without_work(queues):
    with queues.run() as run:
        queues.send(queues.names[0])
        run.until(lambda: queues.shop.handled() == 1, "the warm process is there")
        run.until(lambda: run.workers(queues.names[0]) == 0, "it was returned")
        os.kill(queues.noted()[0][0], signal.SIGKILL)
        queues.send(queues.names[1])
        run.until(lambda: queues.shop.handled() == 2, "another one takes the next message")

    assert run.seen(events.Critical) == run.seen(events.MovedToError) == []


@concurrent
def test_a_handler_of_the_warm_process_that_exceeds_its_time_limit_is_killed(queues, tmp_path):
    with queues.run("wait_for_file", attempts=1, time_limit=0.1) as run:
        queues.send(queues.names[1], str(tmp_path / "never").encode())
        run.until(lambda: len(queues.shop.errors()) == 1, "the message is in the error queue")
        queues.send(queues.names[2], b"/")
        run.until(lambda: queues.shop.handled() == 1, "the next one is handled")

    assert len(run.seen(events.TimedOut)) == 1


def test_a_stop_lets_the_handler_of_the_warm_process_end(queues, tmp_path):
    gate = tmp_path / "gate"
    with queues.run("wait_for_file") as run:
        queues.send(queues.names[1], str(gate).encode())
        run.until(lambda: running(gate) == 1, "the handler")
        run.supervisor.stop()
        gate.touch()
        error = run.ended()

    assert (error, queues.shop.handled(), queues.shop.depth(queues.names[1])) == (None, 1, 0)


def test_a_second_stop_interrupts_the_handler_of_the_warm_process(queues, tmp_path):
    gate = tmp_path / "gate"
    with queues.run("wait_for_file") as run:
        queues.send(queues.names[1], str(gate).encode())
        run.until(lambda: running(gate) == 1, "the handler")
        run.supervisor.stop()
        run.supervisor.stop()
        run.ended()

    assert (queues.shop.handled(), queues.shop.depth(queues.names[1])) == (0, 1)
    assert run.seen(events.Failed) == []


@pytest.mark.promise("quiet-queues")
def test_endpoints_of_quiet_queues_are_subscribed_before_they_have_work(queues, handled_table, database):  # noqa: F811
    billing = QueueSettings("Billing", worker=WorkerSettings("tests.support.endpoints:billing", peek_delay=0.1))

    with Running(queues.settings(others=(billing,))) as run:
        run.until(lambda: "Billing" in [row[1] for row in database.call("list_subscriptions")], "the subscription")

        assert run.workers("Billing") == 0


def test_an_isolated_queue_keeps_a_worker_of_its_own(queues):
    apart = queues.shop.worked(queues.shop.make_queue().name, "note_process", isolated=True)
    with Running(queues.settings(others=(apart,))) as run:
        run.until(lambda: run.seen(events.WorkerStarted, apart.name), "its worker")
        queues.send(apart.name)
        run.until(lambda: queues.shop.handled() == 1, "its message is handled")
        queues.send(queues.names[0])
        run.until(lambda: queues.shop.handled() == 2, "another queue's message is handled")
        own = run.seen(events.WorkerStarted, apart.name)[0].pid

        assert run.workers(apart.name) == 1

    assert [process == own for process, _ in queues.noted()] == [True, False]


def test_a_reload_lets_the_warm_process_work_for_a_new_queue(queues):
    before = queues.settings()
    new = queues.shop.worked(queues.shop.make_queue().name, "note_process")
    with Running(before, load=lambda: replace(before, queues=(*before.queues, new))) as run:
        queues.send(queues.names[0])
        run.until(lambda: queues.shop.handled() == 1, "a message before")
        run.supervisor.reload()
        run.until(lambda: run.seen(events.Reloaded), "the reload")
        queues.send(new.name)
        run.until(lambda: queues.shop.handled() == 2, "a message of the new queue")

        run.until(lambda: run.workers(new.name) == 0, "it was returned")

    assert run.seen(events.WorkerDied) == run.seen(events.Trouble) == []


# ------------------------------------------------------------------ which queues keep a worker
def test_at_the_start_the_first_queues_keep_a_worker_and_then_those_that_had_work_last():
    idle = IdleWorkers()
    idle.use(2, "ABCD")
    first = [name for name in "ABCD" if idle.keeps(name)]

    idle.worked("D")
    idle.worked("C")
    idle.worked("D")

    assert (first, [name for name in "ABCD" if idle.keeps(name)]) == (["A", "B"], ["C", "D"])
    idle.worked("A")
    assert [name for name in "ABCD" if idle.keeps(name)] == ["A", "D"]


def test_other_settings_leave_the_workers_to_queues_that_are_still_there():
    idle = IdleWorkers()
    idle.use(2, "ABC")
    idle.worked("C")

    idle.use(2, "XC")

    assert [name for name in "ABCX" if idle.keeps(name)] == ["C", "X"]
    idle.use(0, "XC")
    assert not idle.keeps("C")


# ------------------------------------------------------------------ when the warm process is borrowed and kept
class Warm:
    """Stands for the warm process: it can be borrowed while `free` is true."""

    serves = True

    def __init__(self, free=True):
        self.free, self.waited = free, []

    def borrow(self, assignment, now):
        return Borrowed(assignment, pid=7) if self.free else None

    def comes_soon(self, queue, now):
        self.waited.append(now)
        return now < 1.0 + WAIT_S

    def waits_until(self, queue):
        return float("inf")


class Borrowed(Process):
    borrowed = True

    def is_first(self):
        return False

    def adopt(self):
        self.borrowed = False


def quiet_history(**options):
    history = History(limit=4, warm=Warm(**options), idle=IdleWorkers())
    history.at(0.0)
    history.peeks(0, now=0.0)
    return history


def test_a_quiet_queue_starts_no_worker():
    assert quiet_history().processes == []


def test_the_warm_process_is_alone_until_it_is_the_queues_own():
    history = quiet_history()
    history.peeks(100, now=1.0)
    history.ready(1, now=1.0)
    history.at(1.0 + ADOPT_AFTER_S / 2)
    before = len(history.processes)

    history.at(1.0 + ADOPT_AFTER_S)
    history.at(1.0 + ADOPT_AFTER_S)

    assert (before, len(history.processes)) == (0, 3)
    assert [event.pid for event in history.seen(events.WorkerStarted)] == [7]


def test_a_queue_waits_a_moment_for_the_warm_process_and_then_starts_its_own():
    history = quiet_history(free=False)
    history.peeks(1, now=1.0)
    before = len(history.processes)

    history.at(1.0 + WAIT_S)

    assert (before, len(history.processes)) == (0, 1)


def test_a_queue_that_needs_it_again_and_again_makes_it_its_own():
    history, now = quiet_history(), 1.0
    for number in range(1, ADOPT_AT + 1):
        before = history.seen(events.WorkerStarted)
        history.peeks(1, now=now)
        history.ready(number, now=now)
        if number < ADOPT_AT:
            history.receives(number, 1, -1, now=now + 0.01, handled=1)
            history.dies(number, 0, now=now + 0.02)
        now += 0.1

    assert before == []
    assert [event.pid for event in history.seen(events.WorkerStarted)] == [7]


def test_a_returned_process_is_no_worker_any_more():
    history = quiet_history()
    history.peeks(1, now=1.0)
    history.ready(1, now=1.0)
    history.receives(1, 1, -1, now=1.01, handled=1)

    history.dies(1, 0, now=1.02)

    assert (history.pool.handles, history.processes) == ([], [])


# ------------------------------------------------------------------ the warm process by replayed reports
class Spawned:
    """Stands for a process with one slot, and for its memory."""

    def __init__(self):
        self.process, self.memory = self, [self]
        self.pid, self.exitcode, self.waitables, self.sent, self.said = 9, None, [self], [], []
        self.stop = self

    def reports(self):
        while self.said:
            yield self.said.pop(0)

    def send(self, command):
        self.sent.append(command)

    def reset(self): ...
    def request(self, level): ...
    def kill(self):
        self.exitcode = -9

    def close(self): ...


class Prepared:
    def __init__(self):
        self.errors, self.is_subscribed = [], False

    def prepared(self, crash_policy): ...
    def refuse(self, error):
        self.errors.append(error)

    def subscribed(self):
        self.is_subscribed = True


class Replayed:
    """A WarmProcess, the processes that it starts and the events that it emits."""

    def __init__(self):
        self.spawned, self.events, self.pools = [], [], {"A": Prepared(), "B": Prepared()}
        self.warm = WarmProcess(self.spawn, self.events.append, lambda: self.pools)
        self.warm.use(lambda: tuple(assignment(name) for name in self.pools))
        self.warm.tick(0.0)

    def spawn(self, assignments):
        self.spawned.append(Spawned())
        return self.spawned[-1]

    def says(self, *reports, now=1.0):
        self.spawned[-1].said += reports
        return self.warm.tick(now)

    def ends(self, exitcode, now=1.0):
        self.spawned[-1].exitcode = exitcode
        return self.warm.tick(now)


def assignment(name):
    return Assignment(None, name, "shop:place")


def test_it_is_borrowed_when_it_has_imported_all_handlers_by_one_queue_at_a_time():
    replayed = Replayed()
    early = replayed.warm.borrow(assignment("A"), 0.5)
    replayed.says(Imported("A"), Imported("B", error="no"), EndpointsSubscribed(("A",)))

    first, second = replayed.warm.borrow(assignment("A"), 1.0), replayed.warm.borrow(assignment("B"), 1.0)

    assert (early, second) == (None, None)
    assert (first.borrowed, replayed.pools["A"].is_subscribed, replayed.pools["B"].errors) == (True, True, ["no"])
    replayed.spawned[0].said = [WorkerProgress(False, 1), Returned()]
    assert first.collect({replayed.spawned[0]})
    assert (first.exitcode, [*first.reports()]) == (0, [WorkerProgress(False, 1)])
    first.close()
    assert replayed.warm.borrow(assignment("B"), 1.1) is not None


def test_the_queue_that_has_waited_longest_borrows_it_first():
    replayed = Replayed()
    replayed.says(EndpointsSubscribed(()))
    replayed.warm.comes_soon("B", 1.0)

    assert replayed.warm.borrow(assignment("A"), 1.1) is None
    assert replayed.warm.comes_soon("A", 1.1)
    assert replayed.warm.borrow(assignment("B"), 1.1) is not None
    assert not replayed.warm.comes_soon("A", 1.1 + WAIT_S)


def test_nobody_waits_for_a_process_that_is_not_needed():
    replayed = Replayed()
    replayed.warm.use(None)

    assert not replayed.warm.comes_soon("A", 1.0)


def test_a_queue_that_waits_no_longer_keeps_no_other_queue_waiting():
    replayed = Replayed()
    replayed.says(EndpointsSubscribed(()))
    replayed.warm.comes_soon("B", 1.0)

    assert replayed.warm.borrow(assignment("A"), 1.0 + WAIT_S) is not None


def test_another_process_starts_when_a_queue_has_adopted_it():
    replayed = Replayed()
    replayed.says(EndpointsSubscribed(()))
    worker = replayed.warm.borrow(assignment("A"), 1.0)

    worker.adopt()
    replayed.warm.tick(1.1)

    assert len(replayed.spawned) == 2
    replayed.spawned[0].said = [Returned()]
    worker.collect({replayed.spawned[0]})
    assert worker.exitcode is None  # the process is told to leave, and then it ends
    assert type(replayed.spawned[0].sent[-1]).__name__ == "Leave"


def test_if_the_imports_kill_the_process_again_and_again_each_queue_has_a_worker_of_its_own():
    replayed, now = Replayed(), 1.0
    while replayed.warm.serves:
        replayed.ends(3, now)
        now += 60.0
        replayed.warm.tick(now)

    assert len(replayed.spawned) == 3
    assert "exit code 3" in replayed.events[0].error
    assert "each queue gets a process of its own" in replayed.events[-1].error


def test_an_endpoint_that_cannot_be_subscribed_is_said_once():
    replayed = Replayed()

    replayed.says(EndpointsSubscribed(("A",), {"B": "denied"}), EndpointsSubscribed((), {"B": "denied"}))
    replayed.says(EndpointsSubscribed(("B",)))

    assert [(event.queue, event.error) for event in replayed.events] == [
        ("B", "Failed to subscribe the endpoint of B: denied")
    ]
    assert replayed.pools["B"].is_subscribed


def test_it_leaves_when_it_is_stopped_and_after_its_queue_has_returned_it():
    replayed = Replayed()
    replayed.says(EndpointsSubscribed(()))
    worker = replayed.warm.borrow(assignment("A"), 1.0)
    replayed.warm.stop()
    before = replayed.warm.finished

    replayed.spawned[0].said = [Returned()]
    worker.collect({replayed.spawned[0]})
    worker.close()
    replayed.ends(0)

    assert (before, replayed.warm.finished, len(replayed.spawned)) == (False, True, 1)
