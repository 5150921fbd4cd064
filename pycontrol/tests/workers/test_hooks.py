"""Hooks at the start and the stop of worker processes, and at critical errors: a user's program under `rowpost run`."""

import os
import signal
from collections import defaultdict

import pytest

from rowpost.database.connection import connect_url
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage
from tests.support.program import Program, environment_file
from tests.support.workers import eventually

APP = """
import os
from pathlib import Path

from rowpost import Endpoint

sales = Endpoint("Sales", {options})


def note(text):
    with Path("seen.txt").open("a") as file:
        file.write(f"{{os.getpid()}} {{text}}\\n")


@sales.at_start
def start():
    if not Path("allowed").exists():
        raise OSError("not yet")
    note("start")


@sales.at_start
async def start_async():
    note("async start")


@sales.at_stop
def stop():
    note("stop")


@sales.at_critical_error
def alarm(queue, error):
    with Path("alarms.txt").open("a") as file:
        file.write(f"{{os.getpid()}} {{queue}}: {{error}}\\n")


@sales.at_critical_error
def broken(queue, error):
    raise ValueError("a hook of the supervisor fails")


@sales.handles_everything
def handle(message, context):
    note("handle")
"""
REST = "supervisor: {breaker_seconds: 1}\nqueues: {Sales: {}, error: {}}\n"


@pytest.fixture
def program(new_database, tmp_path) -> Program:
    return Program(environment_file(tmp_path, rest=REST), tmp_path, SHOP_URL=new_database("embedded"))


def seen(program):
    """Return what was noted, by process."""
    by_process = defaultdict(list)
    file = program.folder / "seen.txt"
    for line in file.read_text().splitlines() if file.exists() else ():
        process, _, what = line.partition(" ")
        by_process[process].append(what)
    return by_process


def handled(program):
    return sum(each.count("handle") for each in seen(program).values())


@pytest.mark.promise("start-before-messages")
@pytest.mark.parametrize("options", ["limit=2", "concurrency=4", "limit=2, strategy='fixed'"])
def test_a_process_receives_when_its_start_has_run_and_runs_its_stop_behind_the_last_message(program, options):
    (program.folder / "hooked_shop.py").write_text(APP.format(options=options))
    assert program("apply", "--yes").code == 0
    with connect_url("postgresql", program.variables["SHOP_URL"], "test") as database:
        Queue("Sales", database).send_many(OutgoingMessage(b"1") for _ in range(20))
    alarms = program.folder / "alarms.txt"

    with program.started("run", "hooked_shop:sales") as running:
        eventually(alarms.exists, "a critical error, for the start fails")
        before = seen(program)
        (program.folder / "allowed").touch()
        eventually(lambda: handled(program) == 20, "all are handled")
        running.process.send_signal(signal.SIGTERM)
        ended = running.ended()

    assert before == {}
    assert ended.code == 0
    for steps in seen(program).values():
        assert (steps[:2], steps[-1], steps.count("stop")) == (["start", "async start"], "stop", 1)
        assert steps.count("start") == steps.count("async start") == 1
    (alarm,) = alarms.read_text().splitlines()
    process, _, said = alarm.partition(" ")
    assert said.startswith("Sales: Failed to receive from Sales: StartFailed: start at the start of Sales failed with")
    assert process not in {*seen(program), str(os.getpid())}  # the supervisor's own
    assert "a hook of the supervisor fails" in ended.err
    assert "OSError: not yet" in ended.out  # with its traceback, as a line of the worker
