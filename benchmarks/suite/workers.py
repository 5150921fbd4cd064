"""Start rowpost's workers for a measurement.

`worker_pool` starts worker processes and sends them commands directly, as a supervisor does. `running` starts
`rowpost run` as in production.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml

from benchmarks.suite.server import Place, tree, wait_until
from benchmarks.suite.tsql import TsqlPlace
from rowpost.workers.protocol import Assignment, Exit, HandlerRefused, Ready, Receive, ReceiveFailed, WorkerProgress
from rowpost.workers.worker.process import shared_high_water_mark, spawn_worker

__all__ = ["HANDLERS", "NOTES", "Notes", "Service", "WorkerPool", "backends", "make_ready", "running", "worker_pool"]

HANDLERS = "benchmarks.handlers.worked"  # the module of the handlers
NOTES = "ROWPOST_BENCH_NOTES"  # the same name as in that module
ROOT = Path(__file__).parents[2]
ROUND_TIMEOUT_S = 240.0


def make_ready(folder: Path) -> None:
    """Set the folder for the handlers' notes. Call it before the first worker process starts, because they inherit it."""
    os.environ[NOTES] = str(folder)


class Notes:
    """The durations in seconds that handlers have written to a folder, one file for each process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def take(self, number: int, pids: Iterable[int] | None = None) -> list[float]:
        """Wait for the next `number` notes of these processes (or of all), and return them. The notes of a process are in order."""

        def unread() -> dict[Path, int]:
            files = self._folder.iterdir() if pids is None else (self._folder / str(pid) for pid in pids)
            return {file: file.stat().st_size - self._read.get(file, 0) for file in files if file.exists()}

        wait_until(lambda: sum(unread().values()) >= 8 * number, f"{number} messages are noted")
        found: list[float] = []
        for file, size in unread().items():
            with file.open("rb") as content:
                content.seek(self._read.get(file, 0))
                found += (seconds for (seconds,) in struct.iter_unpack("d", content.read(size)))
            self._read[file] = self._read.get(file, 0) + size
        return found


def backends(place: Place | TsqlPlace) -> set[int]:
    """Return the process ids of the server's backends of all connected workers."""
    return {pid for (pid,) in place.sql(place.connected).fetchall()}


class WorkerPool:
    """Worker processes that receive on command."""

    def __init__(self, workers: list) -> None:
        self._workers = workers
        self._round = 0
        self._notes = Notes(Path(os.environ[NOTES]))

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers]

    def noted(self, number: int) -> list[float]:
        """Wait for the next notes of its handlers, and return them in seconds."""
        return self._notes.take(number, self.pids)

    def drain(self) -> float:
        """Start a round, and return the seconds until each worker has found the queue empty."""
        self._round += 1
        started = time.monotonic()
        for worker in self._workers:
            worker.send(Receive(self._round))
        for worker in self._workers:
            _wait_for_report(worker, WorkerProgress, lambda report: report.round == self._round and not report.busy)
        return time.monotonic() - started


@contextmanager
def worker_pool(
    place: Place | TsqlPlace, handler: str, number: int = 1, queue: str = "Bench", **assignment
) -> Iterator[WorkerPool]:
    """Start connected workers. `handler` names a function of handlers/worked.py, or `module:function`."""
    before = backends(place)
    name = handler if ":" in handler else f"{HANDLERS}:{handler}"
    assignment["high_water_mark"] = shared_high_water_mark()
    workers = [spawn_worker(Assignment(place.settings, queue, name, n, **assignment)) for n in range(1, number + 1)]
    try:
        for worker in workers:
            _wait_for_report(worker, Ready)
        wait_until(lambda: len(backends(place) - before) >= number, "workers connect")
        yield WorkerPool(workers)
    finally:
        for worker in workers:
            worker.send(Exit())
        for worker in workers:
            with suppress(TimeoutError):  # then it is killed
                wait_until(lambda worker=worker: worker.exitcode is not None, "a worker exits")
            worker.close()


def _wait_for_report(worker, kind: type, condition: Callable = lambda report: True) -> None:
    """Wait for a report. Raises RuntimeError if a worker or handler fails, TimeoutError after ROUND_TIMEOUT_S seconds."""
    deadline = time.monotonic() + ROUND_TIMEOUT_S
    while time.monotonic() < deadline:
        for report in worker.reports():
            if isinstance(report, ReceiveFailed | HandlerRefused):
                raise RuntimeError(f"a worker failed: {report.error}")
            if isinstance(report, WorkerProgress) and report.failures:
                raise RuntimeError(f"a handler failed: {report.failures[0].error}")
            if isinstance(report, kind) and condition(report):
                return
        if worker.exitcode is not None:
            raise RuntimeError(f"a worker exited with code {worker.exitcode}")
        time.sleep(0.001)
    raise TimeoutError(f"no report {kind.__name__} within {ROUND_TIMEOUT_S} s")


class Service:
    """`rowpost run` as a process."""

    def __init__(self, process: subprocess.Popen) -> None:
        self._process = process

    def processes(self) -> list[int]:
        return tree(self._process.pid)


@contextmanager
def running(
    place: Place,
    folder: Path,
    workers: Mapping[str, Mapping[str, object]],
    environment: Mapping[str, str] | None = None,
    supervisor: Mapping[str, object] | None = None,
) -> Iterator[Service]:
    """Run `rowpost run` with the given worker settings by queue. The block starts when each queue has a worker."""
    file = folder / "bench.yml"
    queues = {name: {"worker": dict(worker)} for name, worker in workers.items()}
    described = {
        "environment": "bench",
        "engine": "postgresql",
        "url": "${ROWPOST_BENCH_URL}",
        "supervisor": dict(supervisor or {}),
    }
    file.write_text(yaml.safe_dump({**described, "queues": {**queues, "error": {}}}))
    log = (folder / "run.log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-c", "from rowpost.cli import main; main()", "--env", str(file), "run"], stdout=log, stderr=log, cwd=ROOT,
        env={**os.environ, **(environment or {}), "ROWPOST_BENCH_URL": place.url},
    )  # fmt: skip
    try:

        def up() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"rowpost run has exited: {Path(log.name).read_text()[-600:]}")
            return len(backends(place)) >= len(workers)

        wait_until(up, "rowpost run starts its workers", every=0.05)
        yield Service(process)
    finally:
        process.terminate()
        try:
            process.wait(40.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()
