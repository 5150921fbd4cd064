"""Queues that operators pause and limit in the database: what supervisors make of it, and what others see of the supervisors."""

import os
import socket
from dataclasses import replace
from uuid import UUID

import pytest

from rowpost.errors import PermissionDenied
from rowpost.transport.controls import limit_workers, pause, resume
from rowpost.transport.queue import Queue
from rowpost.transport.supervisors import ReportedWorker, supervisors_of
from rowpost.wire.message import OutgoingMessage
from rowpost.workers import events
from rowpost.workers.answers import Answer, Control
from rowpost.workers.protocol import Exit
from rowpost.workers.supervision.lifelines import Lifeline
from rowpost.workers.supervision.monitor import QueueMonitor
from rowpost.workers.supervision.presence import PresenceReports
from tests.support.pool_history import History, idle_history
from tests.support.workers import Running, eventually, running, shop, supervisor_process

__all__ = ["shop"]


# ------------------------------------------------------------------ decisions, without processes
def looks(history, now, count=0, **control):
    history.pool.on_answer(Answer("Sales", count, control=Control(**control)), now)
    return history.at(now)


def test_a_pause_lets_all_workers_exit_after_their_messages_and_looks_go_on():
    history = idle_history(limit=3, peek_delay=1.0)
    history.peeks(100, now=1.0)
    history.ready(2, 3, now=1.0)

    due = looks(history, 2.0, count=97, paused=True, by="anna", reason="closed")

    assert [process.commands[-1] for process in history.processes] == [Exit()] * 3
    assert [(event.by, event.reason) for event in history.seen(events.Paused)] == [("anna", "closed")]
    assert (due, history.pool.snapshot(2.0).paused, history.pool.snapshot(2.0).depth) == (3.0, True, 97)
    for number in (1, 2, 3):
        history.dies(number, 0, now=2.1)
    history.at(3.0)
    assert (len(history.processes), history.asked[-1]) == (3, (3.0, False))


def test_what_workers_report_in_a_pause_starts_nothing():
    history = idle_history(limit=3)
    history.peeks(100, now=1.0)
    looks(history, 2.0, count=97, paused=True)

    history.receives(1, 1, now=2.1, handled=1)
    history.pool.on_wake_up(2.2)
    history.at(2.2)

    assert len(history.processes) == 3
    assert history.pool.seconds_to_next_peek(2.2) == pytest.approx(0.8)


@pytest.fixture(autouse=True)
def nobody_works(request):
    if "shop" in request.fixturenames:
        sql = request.getfixturevalue("sql")
        for table in ("queue_control", "supervised_queue", "supervisor"):
            sql.run(f"DELETE FROM rowpost.{table}")


@pytest.mark.parametrize("strategy", ["peek", "adaptive", "fixed"])
def test_a_resumed_queue_starts_as_a_new_one(strategy):
    history = History(limit=2, strategy=strategy)
    looks(history, 0.5)
    history.ready(*(handle.number for handle in history.pool.handles), now=0.6)
    looks(history, 1.0, paused=True)
    for handle in list(history.pool.handles):
        history.dies(handle.number, 0, now=1.1)
    before = len(history.processes)

    looks(history, 2.0, count=50)

    assert len(history.seen(events.Resumed)) == 1
    assert [process.assignment.receive for process in history.processes[before:]][:1] == [strategy == "peek"]
    assert len(history.processes) - before == (1 if strategy == "adaptive" else 2)


@pytest.mark.parametrize("strategy", ["adaptive", "fixed"])
def test_a_worker_that_polls_starts_only_when_it_is_known_that_the_queue_is_not_paused(strategy):
    paused, worked = History(limit=2, strategy=strategy), History(limit=2, strategy=strategy)
    for history in (paused, worked):
        history.at(0.0)
        assert history.processes == []

    looks(paused, 0.1, count=5, paused=True)
    looks(worked, 0.1, count=5)

    assert (len(paused.processes), len(worked.processes) > 0) == (0, True)


def test_a_limit_in_the_database_goes_before_the_environments_until_it_is_cleared():
    history = idle_history(limit=4)
    looks(history, 1.0, count=1000, limit=2, by="anna")
    limited = len(history.processes), history.pool.snapshot(1.0).limit
    history.pool.set_limit(8)
    history.at(1.1)
    kept = history.pool.snapshot(1.1).limit
    looks(history, 2.0, count=1000)

    assert (limited, kept, history.pool.snapshot(2.0).limit) == ((2, 2), 2, 8)
    assert [(event.limit, event.environment, event.by) for event in history.seen(events.LimitChanged)] == [
        (2, 4, "anna"),
        (2, 8, "anna"),
        (8, 8, ""),
    ]


def test_a_part_of_no_worker_is_a_pause_of_this_supervisor():
    history = idle_history(limit=4)

    looks(history, 1.0, count=1000, limit=0, by="anna")

    assert (history.commands(1), len(history.processes), history.pool.snapshot(1.0).paused) == ([Exit()], 1, True)


def test_a_login_that_cannot_see_the_controls_works_without_them():
    history = idle_history(limit=4)

    history.peeks(1000, now=1.0)

    assert (len(history.processes), history.seen(events.LimitChanged)) == (4, [])


# ------------------------------------------------------------------ real workers
def handled(run, queue):
    return sum(event.count for event in run.seen(events.Handled, queue))


def test_a_paused_queue_keeps_its_messages_and_handles_them_when_it_is_resumed(shop, database):
    with shop.run("note") as run:
        shop.send(1)
        run.until(lambda: handled(run, shop.name) == 1, "the first message is handled")
        pause(database, shop.name, "closed")
        run.until(lambda: run.seen(events.Paused), "the supervisor has seen the pause")
        run.until(lambda: run.workers(shop.name) == 0, "all workers have exited")
        shop.send(3)
        run.until(lambda: run.supervisor.snapshot().queue(shop.name).depth == 3, "the messages are seen")
        waiting = shop.queue.peek()
        assert run.supervisor.snapshot().idle
        resume(database, shop.name)
        run.until(lambda: handled(run, shop.name) == 4, "all are handled")

    assert waiting == 3


@pytest.mark.parametrize("strategy", ["peek", "adaptive"])
def test_a_supervisor_that_starts_in_a_pause_receives_nothing(shop, database, strategy):
    shop.send(2)
    pause(database, shop.name)

    with shop.run("note", strategy=strategy) as run:
        run.until(lambda: run.seen(events.Paused), "the supervisor has seen the pause")
        run.until(lambda: len(run.seen(events.Peeked)) > 2, "it looks on")

        assert (handled(run, shop.name), shop.queue.peek()) == (0, 2)


def test_messages_in_flight_are_handled_in_a_pause(shop, database, tmp_path):
    gate = tmp_path / "gate"
    shop.send(1, str(gate).encode())
    with shop.run("wait_for_file") as run:
        run.until(lambda: running(gate) == 1, "the handler runs")
        pause(database, shop.name)
        run.until(lambda: run.seen(events.Paused), "the supervisor has seen the pause")
        gate.touch()
        run.until(lambda: handled(run, shop.name) == 1, "the message is handled")
        run.until(lambda: run.workers(shop.name) == 0, "its worker has exited")


def test_a_delayed_message_arrives_in_a_pause(shop, database):
    pause(database, shop.name)
    with shop.run("note") as run:
        run.until(lambda: run.seen(events.Paused), "the supervisor has seen the pause")
        database.call("delay_message", shop.name, headers="{}", body=b"x", delay_ms=100)

        run.until(lambda: shop.queue.peek() == 1, "the message is in its queue")


def test_supervisors_share_a_limit(shop, database):
    with shop.run("note", limit=8) as first, shop.run("note", limit=8) as second:
        eventually(lambda: len(supervisors_of(database)) == 2, "both have reported")
        limit_workers(database, shop.name, 5, shared=True)
        limits = lambda: sorted(run.supervisor.snapshot().queue(shop.name).limit for run in (first, second))  # noqa: E731
        eventually(lambda: limits() == [2, 3], "each has its part")
        limit_workers(database, shop.name, None)
        eventually(lambda: limits() == [8, 8], "the environment decides again")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no locks that a process inherits")
def test_killed_supervisors_give_their_parts_of_a_limit_back_at_once(shop, database):
    limit_workers(database, shop.name, 3, shared=True)
    with supervisor_process(shop, "note") as one, supervisor_process(shop, "note") as other:
        eventually(lambda: len(supervisors_of(database)) == 2, "both have reported")
        one.kill()
        other.kill()

        with shop.run("note", limit=8) as run:
            run.until(
                lambda: [each.process_id for each in supervisors_of(database)] == [os.getpid()],
                "the killed ones are known no more",
            )
            run.until(lambda: run.supervisor.snapshot().queue(shop.name).limit == 3, "the whole limit is free")

    assert supervisors_of(database) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no locks that a process inherits")
def test_the_part_of_a_killed_supervisor_is_free_when_its_last_worker_has_ended(
    shop, database, sql, tmp_path, monkeypatch
):
    limit_workers(database, shop.name, 2, shared=True)
    gate = tmp_path / "gate"
    shop.send(1, str(gate).encode())
    later = (
        "seen_at + interval '1 hour'" if shop.target.settings.engine == "postgresql" else "DATEADD(HOUR, 1, seen_at)"
    )
    with supervisor_process(shop, "wait_for_file", stop_timeout=300) as killed:
        eventually(lambda: running(gate) == 1, "its handler runs")
        eventually(lambda: len(supervisors_of(database)) == 1, "it has reported")
        killed.kill()
        killed.wait()
        sql.run(
            f"UPDATE rowpost.supervisor SET seen_at = {later}"
        )  # its report is not overdue, however long this takes

        searches = []
        departed = Lifeline.departed
        monkeypatch.setattr(Lifeline, "departed", lambda self: searches.append(departed(self)) or searches[-1])
        with shop.run("note", limit=8) as run:
            run.until(lambda: len(searches) > 1, "the new one has searched")
            run.until(lambda: run.supervisor.snapshot().queue(shop.name).limit == 1, "it has half of the limit")
            during = (len(supervisors_of(database)), sum(map(len, searches)))
            gate.touch()
            run.until(lambda: run.supervisor.snapshot().queue(shop.name).limit == 2, "it has the whole limit")

    assert during == (2, 0)


# ------------------------------------------------------------------ who works
def test_a_supervisor_is_seen_with_its_workers_and_their_messages_until_it_ends(shop, database, tmp_path):
    gate = tmp_path / "gate"
    shop.send(1, str(gate).encode())
    (message,) = shop.queue.browse(1)
    settings = shop.settings("wait_for_file")
    with Running(settings, load=lambda: settings) as run:
        run.until(lambda: running(gate) == 1, "the handler runs")
        run.supervisor.reload()  # reports at once

        def busy():
            return [(each, worker) for each in supervisors_of(database) for worker in each.workers if worker.message]

        ((supervisor, worker),) = run.until(busy, "it has reported its worker")
        gate.touch()

    assert (supervisor.host, supervisor.process_id, supervisor.queues, supervisor.gone) == (
        socket.gethostname(),
        os.getpid(),
        (shop.name,),
        False,
    )
    assert (worker.queue, worker.state, UUID(worker.message)) == (shop.name, "busy", message.id)
    assert worker.message_seconds >= 0
    assert supervisors_of(database) == []


def test_a_supervisor_that_died_is_shown_as_gone(shop, database, sql):
    with supervisor_process(shop, "note") as process:
        eventually(lambda: supervisors_of(database), "it has reported")
        process.kill()
    sql.run("UPDATE rowpost.supervisor SET seen_at = '2020-01-01'")

    (gone,) = supervisors_of(database)

    assert (gone.process_id, gone.gone) == (process.pid, True)


class Refusing:
    """A connection that refuses reports, as the database refuses them to a login without the right."""

    def __init__(self, connection):
        self._connection, self.tried = connection, 0

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def call_all(self, calls, **options):
        if any(call.procedure == "report_supervisor" for call in calls):
            self.tried += 1
            raise PermissionDenied("permission denied for function report_supervisor")
        return self._connection.call_all(calls, **options)


def test_a_login_that_may_not_report_looks_at_its_queues_all_the_same(shop):
    answers, made = [], []

    def refusing(*_, **__):
        made.append(Refusing(shop.target.connect()))
        return made[-1]

    monitor = QueueMonitor(shop.settings("note"), answers.append, connect=refusing)
    for _ in range(2):
        monitor.report([shop.name], [ReportedWorker(shop.name, 1, "idle", 0.0)])
        monitor.ask(shop.name)
    monitor.start()
    eventually(lambda: sum(isinstance(each, Answer) for each in answers) == 2, "both looks are answered")
    monitor.report([shop.name], [])
    monitor.ask(shop.name)
    eventually(lambda: sum(isinstance(each, Answer) for each in answers) == 3, "a later look is answered")
    monitor.stop()

    assert [each.error for each in answers if isinstance(each, Answer)] == [None] * 3
    assert (sum(isinstance(each, events.Warned) for each in answers), made[0].tried) == (1, 2)


def test_what_a_newer_release_reports_of_a_worker_is_left_out(shop, database):
    reports = PresenceReports(shop.settings("note"))
    reports.report([shop.name], [ReportedWorker(shop.name, 1, "idle", 0.0)])
    ((_, _, arguments),) = reports.calls
    arguments["workers"] = arguments["workers"].replace('"state"', '"mood": "good", "state"')
    database.call("report_supervisor", **arguments)

    (supervisor,) = supervisors_of(database)

    assert supervisor.workers == (ReportedWorker(shop.name, 1, "idle", 0.0),)


def test_a_report_of_more_workers_than_have_room_is_taken_with_the_first_ones(shop, database):
    reports = PresenceReports(shop.settings("note"))
    reports.report(
        [shop.name],
        [ReportedWorker(shop.name, number, "busy", 0.5, str(UUID(int=number)), 0.25) for number in range(5000)],
    )
    ((_, _, arguments),) = reports.calls
    database.call("report_supervisor", **arguments)

    (supervisor,) = supervisors_of(database)

    assert 500 < len(supervisor.workers) < 1000
    assert [each.process_id for each in supervisor.workers] == list(range(len(supervisor.workers)))


# ------------------------------------------------------------------ other settings
def with_worker(settings, queue, **changes):
    queues = tuple(
        replace(each, worker=replace(each.worker, **changes)) if each.name == queue and each.worker else each
        for each in settings.queues
    )
    return replace(settings, queues=queues)


def test_a_reload_sets_a_limit_and_replaces_the_workers_of_other_changes(shop, make_queue):
    other = make_queue().name
    settings = shop.settings("note", limit=2, idle_workers=2)
    both = replace(settings, queues=(*settings.queues, replace(settings.queues[0], name=other)))
    later = [
        with_worker(both, shop.name, limit=5),
        with_worker(with_worker(both, shop.name, limit=5), other, attempts=7),
    ]
    with Running(both, load=lambda: later.pop(0)) as run:
        pids = lambda name: {event.pid for event in run.seen(events.WorkerStarted, name)}  # noqa: E731
        run.until(lambda: pids(shop.name) and pids(other), "both have workers")
        run.supervisor.reload()
        run.until(lambda: len(run.seen(events.Reloaded)) == 1, "the limit is set")
        limit = run.supervisor.snapshot().queue(shop.name).limit
        run.supervisor.reload()
        run.until(lambda: len(pids(other)) == 2, "the other queue has a new worker")
        run.until(lambda: run.seen(events.WorkerStopped, other), "its old worker has exited")

        assert (limit, len(pids(shop.name))) == (5, 1)
        assert [event.changed for event in run.seen(events.Reloaded)] == [(shop.name,), (other,)]


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        ("tests.support.handlers:nott", "has no 'nott'"),
        ("tests.support.does_not_exist:note", "no module 'tests.support.does_not_exist'"),
        ("tests.support.dies_at_import:note", "ended with exit code 3"),
    ],
)
def test_a_reload_whose_handler_cannot_be_imported_changes_nothing(shop, handler, said):
    settings = shop.settings(limit=1)
    (queue,) = settings.queues
    changed = replace(settings, queues=(replace(queue, worker=replace(queue.worker, handler=handler)),))

    with Running(settings, load=lambda: changed) as run:
        run.until(lambda: run.seen(events.WorkerStarted), "a worker")
        run.supervisor.reload()
        run.until(lambda: run.seen(events.Trouble), "the refusal")
        shop.send(3)
        run.until(lambda: shop.handled() == 3, "the old worker goes on")

    (trouble,) = run.seen(events.Trouble)
    assert trouble.error.startswith("The environment was not read again, and everything continues as before: ")
    assert said in trouble.error
    assert run.seen(events.Reloaded) == run.seen(events.Critical) == []
    assert len(run.seen(events.WorkerStarted)) == 1


def test_a_reload_ends_a_removed_queues_workers_and_starts_those_of_a_new_one(shop, make_queue):
    new = make_queue().name
    settings = shop.settings("note")
    with Running(settings, load=lambda: replace(settings, queues=(replace(settings.queues[0], name=new),))) as run:
        run.until(lambda: run.seen(events.WorkerStarted, shop.name), "it has a worker")
        run.supervisor.reload()
        run.until(lambda: run.seen(events.WorkerStarted, new), "the new queue has one")
        run.until(lambda: run.seen(events.WorkerStopped, shop.name), "the removed queue has none")
        Queue(new, shop.queue.database).send_many([OutgoingMessage(b"{}")] * 2)
        run.until(lambda: handled(run, new) == 2, "the new queue's messages are handled")

        assert [each.queue for each in run.supervisor.snapshot().queues] == [new]


def test_wrong_settings_change_nothing(shop):
    settings = shop.settings("note")
    wrong = [
        replace(settings, queues=()),
        replace(settings, url="postgresql://elsewhere/x"),
        with_worker(settings, shop.name, peek_delay=0.001),
    ]
    with Running(settings, load=lambda: wrong.pop(0)) as run:
        for count in (1, 2, 3):
            run.supervisor.reload()
            run.until(lambda count=count: len(run.seen(events.Trouble)) == count, "it is said")
        shop.send(1)
        run.until(lambda: handled(run, shop.name) == 1, "the old settings go on")

    texts = [event.error for event in run.seen(events.Trouble)]
    assert all(
        text.startswith("The environment was not read again, and everything continues as before: ") for text in texts
    )
    assert ["has a worker" in texts[0], "another one" in texts[1], "too short" in texts[2]] == [True] * 3
