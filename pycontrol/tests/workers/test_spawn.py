"""Workers that are started with `spawn`, as on Windows, and a whole program without what Windows does not have.

These tests run on Linux. They show that rowpost does not need the names that they hide, and not that it runs on Windows.
"""

import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

import rowpost
from rowpost.database import embedded
from rowpost.errors import SettingsError, SparkUnavailable
from rowpost.spark.doctor import check_environment
from rowpost.spark.java import ensure_java
from rowpost.workers import events
from rowpost.workers.worker.process import spawn_worker
from tests.support.program import Program, environment_file
from tests.support.workers import concurrent, eventually, running, supervisor_process

WINDOWS = Path(__file__).parents[1] / "support" / "windows"
SPAWN = partial(spawn_worker, method="spawn")
IMPORT_ALL = """
import pkgutil, sys
from importlib import import_module
import rowpost
for each in pkgutil.walk_packages(rowpost.__path__, "rowpost."):
    import_module(each.name)
print(*sys.modules)
"""


def is_spawned(pid: int) -> bool:
    return any("spawn_main" in argument for argument in psutil.Process(pid).cmdline())


# ------------------------------------------------------------------ workers of a supervisor of this process
@concurrent
def test_spawned_workers_start_up_to_the_limit_and_handle_every_message_once(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(30, str(gate).encode())

    with shop.run("wait_for_file", limit=3, spawn=SPAWN) as supervisor:
        supervisor.until(lambda: running(gate) == 3, "three handlers")
        spawned = [is_spawned(event.pid) for event in supervisor.seen(events.WorkerStarted)]
        gate.touch()
        supervisor.until(lambda: shop.handled() == 30, "all are handled")
        supervisor.until(lambda: supervisor.workers(shop.name) == 1, "idle workers stop")

    assert spawned == [True, True, True]
    assert (shop.handled_twice(), shop.depth()) == (0, 0)
    assert supervisor.seen(events.WorkerDied) == []


def test_a_killed_spawned_worker_is_replaced_and_its_message_is_handled_once(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(5, str(gate).encode())

    with shop.run("wait_for_file", limit=1, spawn=SPAWN) as supervisor:
        supervisor.until(lambda: running(gate) == 1, "a handler")
        psutil.Process(supervisor.seen(events.WorkerStarted)[0].pid).kill()
        supervisor.until(lambda: supervisor.seen(events.WorkerDied), "its end")
        gate.touch()
        supervisor.until(lambda: shop.handled() == 5, "all are handled")

    assert len({event.pid for event in supervisor.seen(events.WorkerStarted)}) == 2
    assert (shop.handled_twice(), shop.depth()) == (0, 0)


@concurrent
def test_a_stop_lets_handlers_of_spawned_workers_finish_and_a_second_one_kills_them(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(6, str(gate).encode())

    with shop.run("wait_for_file", limit=2, spawn=SPAWN) as supervisor:
        supervisor.until(lambda: running(gate) == 2, "two handlers")
        supervisor.supervisor.stop()
        supervisor.until(lambda: supervisor.seen(events.Stopping), "stopping")
        gate.touch()
        supervisor.ended()
    after_one = (shop.handled(), shop.depth())
    gate.unlink()
    for started in tmp_path.glob("gate.*"):
        started.unlink()
    with shop.run("wait_for_file", limit=2, spawn=SPAWN) as supervisor:
        supervisor.until(lambda: running(gate) == 2, "two handlers")
        supervisor.supervisor.stop()
        supervisor.supervisor.stop()
        supervisor.ended()

    assert after_one == (2, 4)
    eventually(lambda: shop.depth() == 4, "both are back")
    assert shop.handled() == 2


# ------------------------------------------------------------------ programs without what Windows does not have
def test_every_module_is_imported_without_the_names_that_windows_does_not_have():
    path = os.pathsep.join([str(WINDOWS), str(Path(rowpost.__file__).parents[1]), *filter(None, sys.path)])

    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )

    modules = {
        ".".join(("rowpost", *each.relative_to(Path(rowpost.__file__).parent).with_suffix("").parts))
        for each in Path(rowpost.__file__).parent.rglob("*.py")
    }
    assert done.returncode == 0, done.stderr
    assert {name.removesuffix(".__init__") for name in modules} <= set(done.stdout.split())


@pytest.mark.parametrize(
    ("program", "refused"),
    [
        ("import fcntl", "ModuleNotFoundError"),
        ("from signal import SIGKILL", "ImportError"),
        ("import os; os.kill(os.getpid(), 0)", "AttributeError"),
        ("import multiprocessing; multiprocessing.get_context('forkserver')", "ValueError"),
    ],
)
def test_the_hidden_names_are_hidden_from_modules_of_rowpost(tmp_path, program, refused):
    (tmp_path / "rowpost_sample.py").write_text(program)
    path = os.pathsep.join([str(WINDOWS), str(tmp_path)])

    done = subprocess.run(
        [sys.executable, "-c", "import rowpost_sample"],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )

    assert refused in done.stderr


@concurrent
def test_a_supervisor_process_without_these_names_handles_replaces_a_killed_worker_and_stops(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.send(5, str(gate).encode())

    with supervisor_process(shop, "wait_for_file", limit=2, path=(WINDOWS,)) as process:
        eventually(lambda: running(gate) == 2, "two handlers")
        worker = int(next(tmp_path.glob("gate.*")).suffix[1:])
        spawned = is_spawned(worker)
        psutil.Process(worker).kill()
        eventually(lambda: running(gate) == 3, "a replacement")
        process.send_signal(signal.SIGTERM)
        assert any("Stopping" in line for line in process.stdout)
        gate.touch()
        exitcode = process.wait(30)

    assert spawned
    assert exitcode == 0
    assert (shop.handled(), shop.depth(), shop.handled_twice()) == (2, 3, 0)


def test_the_command_line_runs_without_these_names(new_database, tmp_path):
    (tmp_path / "shop.py").write_text("def place(message, connection):\n    connection.execute('SELECT 1')\n")
    worker = "queues: {Sales: {worker: {handler: 'shop:place', limit: 2}}, error: {}}\n"
    path = os.pathsep.join([str(WINDOWS), *filter(None, sys.path)])
    program = Program(
        environment_file(tmp_path, rest=worker), tmp_path, SHOP_URL=new_database("embedded"), PYTHONPATH=path
    )

    codes = []
    for arguments in (
        ["apply"],
        ["send", "Sales", "--type", "Shop.PlaceOrder"],
        ["verify"],
        ["run", "--until-idle"],
        ["doctor"],
    ):
        with program.started(*arguments) as started:
            started.process.stdin.write(b'{"OrderId": 1}')
            ended = started.ended()
        codes.append((arguments[0], ended.code, ended.err))
        if arguments[0] == "run":
            handled = re.search(r"(\d+) handled", ended.out)

    assert [code for code in codes if code[1]] == []
    assert handled is not None
    assert handled[1] == "1"


# ------------------------------------------------------------------ what is refused on Windows
def test_the_embedded_server_is_refused_on_windows(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "win32")

    with pytest.raises(SettingsError, match="does not run on Windows"):
        embedded.start(tmp_path)

    assert embedded.running(tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_spark_on_this_machine_is_refused_on_windows(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")

    checks = {check.name: check for check in check_environment({})}

    with pytest.raises(SparkUnavailable, match="on Windows"):
        ensure_java()
    assert checks["system"].state == "bad"
