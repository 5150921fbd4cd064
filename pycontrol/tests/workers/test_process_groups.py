"""Signals for the whole process group, a fork server that is killed, and what handlers start. Real processes."""

import os
import signal
import subprocess
from contextlib import contextmanager, suppress

import psutil
import pytest

from rowpost.workers import events
from tests.support.containers import OWN_PIDS, can_have_own_pids
from tests.support.workers import eventually, running, supervisor_process

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="Windows has no process groups")


def pids(path):
    """Return the processes in which handlers wait for a file."""
    return sorted({int(file.name.rpartition(".")[2].partition("-")[0]) for file in path.parent.glob(f"{path.name}.*")})


#: workers that are processes, tasks of one process, and threads of one
KINDS = {
    "processes": {"handler": "wait_for_file"},
    "tasks": {"handler": "wait_for_file", "module": "tests.support.async_handlers", "concurrency": 3},
    "threads": {"handler": "wait_for_file_in_thread", "module": "tests.support.async_handlers", "concurrency": 3},
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


def fork_server_of(pid: int) -> psutil.Process:
    """Return the fork server that started the worker."""
    return psutil.Process(pid).parent()


@contextmanager
def in_a_group(shop, handler: str, **options):
    """Run a supervisor in a process group of its own."""
    with supervisor_process(shop, handler, group=True, **options) as process:
        try:
            yield process
        finally:
            left = [
                each for each in psutil.process_iter() if each.pid != process.pid and _group_of(each.pid) == process.pid
            ]
            for each in left:
                each.kill()


def has_ended(process: psutil.Process) -> bool:
    """Whether a process has ended, also if nobody has asked for its exit code."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


@kinds
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_handler_ends_its_work_after_a_signal_for_the_whole_group(shop, tmp_path, number, kind):
    gate = tmp_path / "gate"
    shop.send(3, str(gate).encode())

    with in_a_group(shop, limit=1, **kind) as process:
        eventually(lambda: running(gate) == 1, "a handler")
        (worker,) = [psutil.Process(pid) for pid in pids(gate)]
        server = fork_server_of(worker.pid)
        os.killpg(process.pid, number)
        said = process.stdout.readline()
        while "Stopping" not in said:
            said = process.stdout.readline()
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.5)  # a supervisor that took its worker for dead would leave
        alive = (not has_ended(worker), not has_ended(server), process.poll())
        gate.touch()
        code = process.wait(30)
        rest = process.stdout.read()

    assert alive == (True, True, None)
    assert code == 0, rest
    assert "Traceback" not in rest
    assert "WorkerDied" not in rest
    assert (shop.handled(), shop.depth()) == (1, 2)
    assert {message.headers.get("rowpost.failure") for message in shop.queue.browse(10)} == {None}


@kinds
def test_a_handler_that_does_not_end_is_interrupted_at_stop_timeout_after_a_signal_for_the_group(shop, tmp_path, kind):
    gate = tmp_path / "gate"
    shop.send(1, str(gate).encode())

    with in_a_group(shop, limit=1, stop_timeout=0.5, **kind) as process:
        eventually(lambda: running(gate) == 1, "a handler")
        (worker,) = [psutil.Process(pid) for pid in pids(gate)]
        os.killpg(process.pid, signal.SIGTERM)
        code = process.wait(30)
        eventually(lambda: has_ended(worker), "the worker has ended")
        rest = process.stdout.read()

    assert code == 0
    assert f"reason='{'killed' if 'thread' in kind['handler'] else 'interrupted'}'" in rest
    eventually(lambda: shop.depth() == 1, "the message is back")
    assert shop.handled() == 0


def test_a_signal_for_the_group_while_workers_start_ends_in_order(shop):
    with in_a_group(shop, "note", limit=3) as process:
        eventually(lambda: psutil.Process(process.pid).children(), "the fork server starts")
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)
        rest = process.stdout.read()

    assert "Traceback" not in rest
    assert "WorkerDied" not in rest


def test_workers_outlive_a_killed_fork_server_and_no_other_takes_their_place(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(3, str(gate).encode())

    with in_a_group(shop, "wait_for_file", limit=1) as process:
        eventually(lambda: running(gate) == 1, "a handler")
        (first,) = pids(gate)
        server = fork_server_of(first)
        server.kill()
        eventually(lambda: has_ended(server), "the fork server has ended")
        gate.touch()
        eventually(lambda: shop.handled() == 3, "all are handled")
        meanwhile = pids(gate)
        psutil.Process(first).send_signal(signal.SIGTERM)
        shop.send(1, str(gate).encode())
        eventually(lambda: shop.handled() == 4, "another worker handles the next one")
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)
        rest = process.stdout.read()

    assert meanwhile == [first]
    assert code == 0, rest
    assert "Failed" not in rest
    assert "MovedToError" not in rest
    assert shop.handled_twice() == 0


@pytest.mark.skipif(not can_have_own_pids(), reason="this user may not make a PID namespace with unshare")
@pytest.mark.parametrize("signals", [1, 2], ids=["once", "twice"])
@kinds
def test_a_supervisor_that_is_process_1_stops_in_order(shop, tmp_path, kind, signals):
    gate = tmp_path / "gate"
    shop.send(3, str(gate).encode())

    with supervisor_process(shop, limit=2, wrapper=OWN_PIDS, **kind) as process:
        eventually(lambda: running(gate) == 2, "two handlers")
        (first,) = psutil.Process(process.pid).children()
        for _ in range(signals):
            first.send_signal(signal.SIGTERM)
            said = process.stdout.readline()
            while f"now={signals == 2 and _ == 1}" not in said:
                said = process.stdout.readline()
        if signals == 1:
            gate.touch()
        code = process.wait(30)
        rest = process.stdout.read()

    assert code == 0, rest
    assert "Traceback" not in rest
    assert "WorkerDied" not in rest
    assert (shop.handled(), shop.errors()) == (2 if signals == 1 else 0, [])
    eventually(lambda: shop.depth() == 3 - shop.handled(), "the other messages are in the queue")
    assert {message.headers.get("rowpost.failure") for message in shop.queue.browse(10)} == {None}


@kinds
def test_the_workers_of_a_killed_group_end_at_stop_timeout(shop, tmp_path, kind):
    gate = tmp_path / "gate"
    shop.send(1, str(gate).encode())

    with in_a_group(shop, limit=1, stop_timeout=0.5, **kind) as process:
        eventually(lambda: running(gate) == 1, "a handler")
        (worker,) = [psutil.Process(pid) for pid in pids(gate)]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        eventually(lambda: has_ended(worker), "the worker has ended")

    eventually(lambda: shop.depth() == 1, "the message is back")
    assert shop.handled() == 0


@pytest.mark.parametrize("how", ["process", "pool", "spawn_pool", "executor", "manager"])
def test_handlers_start_processes_by_each_way_of_python(shop, how):
    shop.send(2, how.encode())

    with shop.run("compute_in_processes", limit=1, attempts=1) as supervisor:
        supervisor.until(lambda: shop.handled() == 2 or shop.errors(), "both are handled")

    assert [message.headers.get("NServiceBus.ExceptionInfo.StackTrace") for message in shop.errors()] == []
    assert shop.handled() == 2
    assert [event.reason for event in supervisor.seen(events.WorkerStopped)] == ["stop"]


@pytest.mark.parametrize("how", ["executor", "process"])
def test_what_a_killed_handler_started_is_killed_with_it(shop, tmp_path, how):
    gate = tmp_path / "gate"
    shop.send(1, f"{how}|{gate}".encode())

    with shop.run("wait_in_processes", limit=1, stop_timeout=0.1) as supervisor:
        supervisor.until(lambda: running(gate) == 2, "two processes of the handler")
        started = [psutil.Process(pid) for pid in pids(gate)]
        supervisor.supervisor.stop()
        supervisor.ended()
        eventually(lambda: all(has_ended(each) for each in started), "they have ended")

    assert [event.reason for event in supervisor.seen(events.WorkerStopped)] == ["killed"]
