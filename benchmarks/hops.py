"""Count the files and the hops of one received message, to compare how far a reader has to travel through the code.

    PYTHONPATH=pycontrol python benchmarks/hops.py [--way]

A worker handles one message of an endpoint in the mode `sends_atomic_with_receive`: it receives the message, runs a handler
that sends another message, and commits. The trace covers one turn of the worker's loop. A *file* is a module of the package
that the turn entered. A *hop* is a call from one file of the package into another. Calls within a file, and the way back
from a call, do not count. `--way` prints each hop.

The figures depend only on the code, not on the machine. To count another commit, set PYTHONPATH to its `pycontrol` folder.
The tool finds the modules of releases before the packages (`rowpost.worker` instead of `rowpost.workers.worker.worker`) too.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections import Counter
from multiprocessing import Pipe
from pathlib import Path
from types import FrameType
from typing import Any

TYPE = "Bench.Work"
#: names that the trace needs: module, module before the packages, name, name before the packages
_NAMES = {
    "Assignment": ("workers.protocol", "reports", "Assignment"),
    "Endpoint": ("endpoint.endpoint", "endpoint", "Endpoint"),
    "Settings": ("settings.environment", "settings", "Settings"),
    "Worker": ("workers.worker.worker", "worker", "Worker"),
    "connect": ("database.connection", "database", "connect"),
    "embedded": ("database.embedded", "embedded", None),
    "prepare": ("endpoint.provisioning", "hosting", "prepare"),
}


def find(name: str) -> Any:
    """Return a class or function of the package that PYTHONPATH names, in today's place or in the one before."""
    now, before, attribute = _NAMES[name]
    for module in (now, now.rpartition(".")[0], before, "endpoint.hosting"):  # a sub-room was a module of its room
        try:
            found = importlib.import_module(f"rowpost.{module}")
        except ModuleNotFoundError:
            continue
        if attribute is None or hasattr(found, attribute):
            return found if attribute is None else getattr(found, attribute)
    raise SystemExit(f"rowpost has no {name}. Set PYTHONPATH to the folder `pycontrol` of a commit that has it.")


class Trace:
    """Collects calls from file to file within a package while it is active."""

    def __init__(self, package: Path) -> None:
        self._package = f"{package}/"
        self.way: list[tuple[str, str, str]] = []

    def __enter__(self) -> Trace:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        entered = self._file(frame)
        if entered is None:
            return
        caller = frame.f_back
        while caller is not None and self._file(caller) is None:
            caller = caller.f_back
        left = "" if caller is None else str(self._file(caller))
        if left != entered:
            self.way.append((left, entered, frame.f_code.co_name))

    def _file(self, frame: FrameType) -> str | None:
        name = frame.f_code.co_filename
        return name.removeprefix(self._package) if name.startswith(self._package) else None

    @property
    def files(self) -> list[str]:
        return sorted({entered for _, entered, _ in self.way})


def trace() -> Trace:
    """Handle one message after a few others, which fill the caches, and return its trace."""
    import rowpost

    with tempfile.TemporaryDirectory() as folder:
        settings = find("Settings")(data_folder=Path(folder))
        try:
            return _trace(settings, Path(str(rowpost.__file__)).parent)
        finally:
            find("embedded").stop(settings.data_folder)


def _trace(settings: Any, package: Path) -> Trace:
    endpoint = find("Endpoint")("Work", batch="off")
    other = find("Endpoint")("Other")

    @endpoint.handles(TYPE)
    def handle(message: bytes, context: Any) -> None:
        context.send(message, to="Other", headers={"NServiceBus.EnclosedMessageTypes": TYPE})

    sys.modules["hops_endpoint"] = type(sys)("hops_endpoint")
    sys.modules["hops_endpoint"].endpoint = endpoint
    with find("connect")(settings) as database:
        find("prepare")(other, database)
        find("prepare")(endpoint, database)
        for _ in range(4):
            with endpoint.open(database) as bus:
                bus.send(b"{}", to="Work", headers={"NServiceBus.EnclosedMessageTypes": TYPE})
        ours, theirs = Pipe()
        assignment = find("Assignment")(settings, "Work", "hops_endpoint:endpoint", polls=True, receive=True)
        worker = find("Worker")(assignment, theirs)
        worker._handler = endpoint
        for _ in range(3):
            worker._turn()
        worker._reported_at += 3600.0  # the report that is due every 50 ms is not part of the way
        with Trace(package) as trace:
            worker._turn()
        worker._disconnect()
        ours.close()
        if database.call("peek_queue", queue="Work", count=10) != [(0,)]:
            raise SystemExit("The traced message was not handled. The figures would be those of another way.")
    return trace


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--way", action="store_true", help="print each hop")
    arguments = options.parse_args()
    trace_ = trace()
    entered = Counter(file for _, file, _ in trace_.way)
    if arguments.way:
        for left, file, function in trace_.way:
            print(f"{left or 'start'} -> {file}: {function}")
    for file in trace_.files:
        print(f"{file}: {entered[file]}")
    print(f"files: {len(trace_.files)}, hops: {len(trace_.way)}")


if __name__ == "__main__":
    main()
