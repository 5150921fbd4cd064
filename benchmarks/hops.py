"""Count how far a reader has to travel through the code, and compare that with another commit.

    PYTHONPATH=pycontrol python benchmarks/hops.py [--against COMMIT] [--way message|deploy|retry]

Each figure is the trace of one action on the embedded server:

    message   A worker takes one message of an endpoint in the mode `sends_atomic_with_receive` through one turn of its loop: it receives
              the message, runs a handler that sends another message, and commits. The files, but not the crossings, are counted in
              the supervisor too: it finds a message, lets a worker receive it, and takes its report.
    deploy    `plan` and `apply` of an environment without queues, and `apply` alone of one with four queues, both with nothing to do.
    retry     The dashboard's form that retries all failed messages, until the work in the background has ended.

A *file* is a module of the package that the action entered. A *crossing* is a call from one file of the package into another. Calls within a
file, and the way back from a call, do not count. A *name* is a function of the package that is called from another file. A *call* is a call of
any function of the package. `--way` prints each crossing.

The figures depend only on the code, not on the machine. They are those of the commit that PYTHONPATH names. `--against` counts a
commit of this repository in the same run, and puts its figures beside them. The tool finds the names of the package in the places that they
had in earlier commits too.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from types import FrameType
from typing import Any

import httpx

TYPE = "Bench.Work"
HEADERS = {"NServiceBus.EnclosedMessageTypes": TYPE}
FAILED = {**HEADERS, "NServiceBus.FailedQ": "Work", "NServiceBus.ExceptionInfo.ExceptionType": "builtins.ValueError"}
DEADLINE_S = 30.0
#: a worker reports each 50 ms
REPORTED_S = 0.5
#: for each name that a trace needs, the modules that have or had it, the present one first
_NAMES = {
    "Assignment": ("workers.protocol", "workers.worker.protocol", "reports"),
    "Endpoint": ("endpoint.endpoint", "endpoint"),
    "PipeChannel": ("workers.worker.channel",),
    "Queue": ("transport.queue", "queue"),
    "QueueSettings": ("settings.environment", "settings"),
    "Settings": ("settings.environment", "settings"),
    "Supervisor": ("workers.supervision.supervisor", "workers.supervisor"),
    "Worker": ("workers.worker.worker", "workers.worker", "worker"),
    "WorkerSettings": ("settings.environment", "settings"),
    "app": ("dashboard.application", "dashboard"),
    "apply": ("deploy.apply",),
    "connect": ("database.connection", "database"),
    "host": ("workers.worker.hosted",),
    "plan": ("deploy.plan",),
    "prepare": ("endpoint.provisioning", "endpoint.hosting", "hosting"),
    "start_telemetry": ("endpoint.telemetry",),
    "stop": ("database.embedded", "embedded"),
}


def find(name: str, *, may_lack: bool = False) -> Any:
    """Return a class or function of the package that PYTHONPATH names, in today's place or in an earlier one. None if it has
    none and `may_lack` it.
    """
    for module in _NAMES[name]:
        try:
            found = importlib.import_module(f"rowpost.{module}")
        except ModuleNotFoundError:
            continue
        if hasattr(found, name):
            return getattr(found, name)
    if may_lack:
        return None
    raise SystemExit(f"rowpost has no {name}. Set PYTHONPATH to the folder `pycontrol` of a commit that has it.")


class Trace:
    """Collects calls while it is active, in this thread and in threads that start later.

    Args:
        package: the folder of the package.
    """

    def __init__(self, package: Path) -> None:
        self.package = package
        self._package = f"{package}/"
        self._active = False
        #: threads whose calls do not count
        self.ignored: set[int | None] = set()
        #: crossings: the file that calls, the file that is entered, the function
        self.way: list[tuple[str, str, str]] = []
        self.calls = 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Observe threads that start in the block, as soon as the trace is active."""
        threading.setprofile(self._note)
        try:
            yield
        finally:
            threading.setprofile(None)  # type: ignore[arg-type]

    def __enter__(self) -> Trace:
        self._active = True
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._active = False

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not self._active or threading.get_ident() in self.ignored:
            return
        entered = self._file(frame)
        if entered is None:
            return
        self.calls += 1
        caller = frame.f_back
        while caller is not None and self._file(caller) is None:
            caller = caller.f_back
        left, name = "" if caller is None else str(self._file(caller)), frame.f_code.co_name
        if left != entered:
            self.way.append((left, entered, name))

    def _file(self, frame: FrameType) -> str | None:
        name = frame.f_code.co_filename
        return name.removeprefix(self._package) if name.startswith(self._package) else None

    @property
    def files(self) -> list[str]:
        return sorted({entered for _, entered, _ in self.way})


# ------------------------------------------------------------------------------------------------ message
def trace_message(settings: Any, trace: Trace) -> dict[str, int]:
    """Handle one message after a few others, which fill the caches."""
    endpoint = find("Endpoint")("Work", batch="off")
    other = find("Endpoint")("Other")

    @endpoint.handles(TYPE)
    def handle(message: bytes, context: Any) -> None:
        context.send(message, to="Other", headers=HEADERS)

    sys.modules["hops_endpoint"] = type(sys)("hops_endpoint")
    sys.modules["hops_endpoint"].endpoint = endpoint  # type: ignore[attr-defined]
    with find("connect")(settings) as database:
        find("prepare")(other, database)
        find("prepare")(endpoint, database)
        for _ in range(4):
            with endpoint.open(database) as bus:
                bus.send(b"{}", to="Work", headers=HEADERS)
        ours, theirs = Pipe()
        assignment = find("Assignment")(settings, "Work", "hops_endpoint:endpoint", polls=True, receive=True)
        channel, host = find("PipeChannel", may_lack=True), find("host", may_lack=True)
        worker = find("Worker")(assignment, channel(theirs) if channel else theirs)
        worker._handler = worker._endpoint = endpoint
        if host:
            worker._hosted = host(assignment)
        else:
            worker._telemetry = find("start_telemetry")(settings, endpoint)
        for _ in range(3):
            worker._turn()
        worker._reported_at += 3600.0  # the report that is due every 50 ms is not part of the way
        with trace:
            worker._turn()
        worker._disconnect()
        ours.close()
        if database.call("peek_queue", queue="Work", count=10) != [(0,)]:
            raise SystemExit("The traced message was not handled. The figures would be those of another way.")
        supervisor = Trace(trace.package)
        _supervise(settings, supervisor, find("Queue")("Work", database))
    files = {*trace.files, *supervisor.files}
    return {"files of a received message": len(files), "crossings of a received message": len(trace.way)}


def _supervise(settings: Any, trace: Trace, queue: Any) -> None:
    """Let a supervisor handle a few messages, and trace what it does for the last one."""
    worker = find("WorkerSettings")("operator:eq", limit=1, strategy="peek")
    settings = replace(
        settings, queues=(find("QueueSettings")("Work", worker=worker), find("QueueSettings")("error", delayed=False))
    )
    supervisor = find("Supervisor")(settings, lambda event: None)
    with trace.installed():
        thread = threading.Thread(target=supervisor.run, daemon=True)
        thread.start()
        try:
            for _ in range(2):
                _handle_one(queue)
            trace.ignored = {
                each.ident for each in threading.enumerate() if each is not thread and "monitor" not in each.name
            }
            with trace:
                _handle_one(queue)
        finally:
            supervisor.stop()
            thread.join(DEADLINE_S)


def _handle_one(queue: Any) -> None:
    """Send a message, and wait until it is handled and the worker's report has arrived."""
    queue.send(b"{}", HEADERS)
    end = time.monotonic() + DEADLINE_S
    while queue.peek():
        if time.monotonic() > end:
            raise SystemExit("The supervisor did not handle a message.")
        time.sleep(0.01)
    time.sleep(REPORTED_S)


# ------------------------------------------------------------------------------------------------ deploy
def trace_deploy(settings: Any, trace: Trace) -> dict[str, int]:
    """Deploy environments again of which nothing has changed: one without queues, and one with four."""
    apply, plan, kind = find("apply"), find("plan"), find("QueueSettings")
    with find("connect")(settings) as database:
        for _ in range(2):
            apply(database, plan(settings))
        with trace:
            apply(database, plan(settings))
        names = {(file, name) for _, file, name in trace.way}
        settings = replace(settings, queues=tuple(kind(name) for name in ("Work", "Other", "error", "audit")))
        for _ in range(2):
            planned = plan(settings)
            apply(database, planned)
        trace.calls = 0
        with trace:
            result = apply(database, planned)
    if result.applied:
        raise SystemExit(
            f"The traced deployment had something to do: {result.applied}. The figures would be those of another way."
        )
    return {"names in plan and apply": len(names), "calls of an apply with nothing to do": trace.calls}


# ------------------------------------------------------------------------------------------------ retry
def trace_retry(settings: Any, trace: Trace) -> dict[str, int]:
    """Retry all failed messages with the dashboard's form."""
    with find("connect")(settings) as database:
        find("prepare")(find("Endpoint")("Work"), database)
        errors = find("Queue")("error", database)
        for _ in range(3):
            errors.send(b"{}", FAILED)
        with trace.installed():
            asyncio.run(_retry(find("app")(settings), trace))
        if errors.peek():
            raise SystemExit("The traced form did not retry all messages. The figures would be those of another way.")
    return {"files of the dashboard's retry of all": len(trace.files)}


async def _retry(app: Any, trace: Trace) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        page = await _page(client)
        for _ in range(2):  # the second time fills the caches
            page = await client.get(page.url)
        fields = dict(re.findall(r'<input type="hidden" name="([\w-]+)" value="([^"]*)"', page.text))
        before = set(threading.enumerate())
        trace.ignored = {
            each.ident for each in before if each is not threading.main_thread() and "AnyIO" not in each.name
        }
        with trace:
            answer = await client.post("/failed/all", data=fields)
            for thread in set(threading.enumerate()) - before:
                if "AnyIO" not in thread.name:
                    await asyncio.to_thread(thread.join, DEADLINE_S)
        if answer.status_code >= 400:
            raise SystemExit(f"The dashboard refused the form: {answer.status_code} {answer.text[:400]}")
    app.state.site.close()


async def _page(client: httpx.AsyncClient) -> httpx.Response:
    """Return the page with the form. The name of its argument has changed."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        for argument in ("operation", "act"):
            page = await client.get(f"/failed/all?{argument}=retry")
            if page.status_code == 200:
                return page
        await asyncio.sleep(0.05)  # the dashboard reads the state of the server first
    raise SystemExit(f"The dashboard has no page to retry all failed messages: {page.status_code} {page.text[:400]}")


# ------------------------------------------------------------------------------------------------ figures
TRACES = {"message": trace_message, "deploy": trace_deploy, "retry": trace_retry}


def count(ways: str | None = None) -> dict[str, int]:
    """Return all figures of the package that PYTHONPATH names, each action in a database of its own.

    Args:
        ways: the action of which each crossing is printed.
    """
    import rowpost

    figures: dict[str, int] = {}
    for action, run in TRACES.items():
        with tempfile.TemporaryDirectory() as folder:
            settings, trace = find("Settings")(data_folder=Path(folder)), Trace(Path(str(rowpost.__file__)).parent)
            try:
                figures |= run(settings, trace)
            finally:
                find("stop")(settings.data_folder)
        if action == ways:
            for left, file, function in trace.way:
                print(f"{left or 'start'} -> {file}: {function}")
    return figures


def count_at(commit: str) -> dict[str, int]:
    """Return all figures of a commit of this repository."""
    root = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", commit, "pycontrol/rowpost", "sql"], cwd=root, check=True, capture_output=True
        ).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        environment = {**os.environ, "PYTHONPATH": str(Path(folder, "pycontrol"))}
        ended = subprocess.run(
            [sys.executable, __file__, "--json"], env=environment, check=True, capture_output=True, text=True
        )
    figures: dict[str, int] = json.loads(ended.stdout)
    return figures


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--way", choices=TRACES, help="print each crossing of this action")
    options.add_argument("--against", metavar="COMMIT", help="count this commit too")
    options.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = options.parse_args()
    figures = count(arguments.way)
    if arguments.json:
        print(json.dumps(figures))
        return
    before = count_at(arguments.against) if arguments.against else {}
    for name, figure in figures.items():
        print(f"{name:45}{figure:8,}" + (f"   {arguments.against} had {before[name]:,}" if before else ""))


if __name__ == "__main__":
    main()
