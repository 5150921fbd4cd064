"""Kill programs at random, for tests that nothing is lost or duplicated."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.fork_server import SOCKET

__all__ = ["ANYTHING", "EXECUTORS", "ROWPOST", "children", "fill", "kill_until_done", "python_of"]

PROGRESS_TIMEOUT_S = 240.0  # for each start
MAX_STARTS = 80
ANYTHING = ("everything", "driver", "jvm", "worker", "worker", "worker")
EXECUTORS = ("executor",)
#: The program rowpost. PYTHONPATH determines its checkout.
ROWPOST = "from rowpost.cli import main; main()"


def python_of(code_path: Path) -> dict[str, str]:
    """Return the environment of a program that imports this checkout's package."""
    path = os.pathsep.join([str(code_path), os.environ.get("PYTHONPATH", "")])
    own = {name: value for name, value in os.environ.items() if name != SOCKET}  # its Spark starts its processes itself
    return {**own, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def children(pid: int) -> list[tuple[int, str]]:
    """Return the ids and command lines of all descendants of a process."""
    found = []
    with suppress(psutil.NoSuchProcess):  # it has ended, or one of them has
        for each in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                found.append((each.pid, " ".join(each.cmdline())))
    return found


def kill_until_done(
    arguments: Sequence[str], environment: dict[str, str], marks: Callable[[], object], *,
    kills: int, longest: float, log: Path, seed: int, victims: Sequence[str] = ANYTHING,
) -> Counter[str]:  # fmt: skip
    """Start a program repeatedly, and kill it, its JVM or one of its workers at random. Then let it complete.

    A process is killed up to `longest` seconds after `marks()` has changed, that is, after the program has made progress.

    Args:
        kills: the minimum number of kills.
        log: a file for the program's output.
        victims: what is killed, chosen at random; EXECUTORS are those of a cluster on this machine.

    Returns:
        How often each kind of process was killed.
    """
    source, killed, starts = random.Random(seed), Counter(), 0
    while True:
        starts += 1
        assert starts < MAX_STARTS, f"the program did not complete: {killed}"
        before = marks()
        with log.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", ROWPOST, *arguments],
                env=environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            while process.poll() is None and sum(killed.values()) < kills:
                end = time.monotonic() + PROGRESS_TIMEOUT_S
                while process.poll() is None and marks() == before and time.monotonic() < end:
                    time.sleep(0.02)
                time.sleep(source.uniform(0, longest))
                before = marks()  # the program survives the death of a worker, and is then hit again
                if process.poll() is None:
                    killed.update(_kill(process, source, victims))
                    print(f"start {starts}, {dict(killed)}, {before}", flush=True)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(timeout=0.5)
            code = process.wait(timeout=PROGRESS_TIMEOUT_S * 3)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code == 0:
            return killed


def _kill(process: subprocess.Popen, source: random.Random, victims: Sequence[str]) -> list[str]:
    """Kill all processes, only the driver, only the JVM, only a Python worker, or only an executor if there is one."""
    below = children(process.pid)
    what = source.choice(victims)
    if what == "executor":
        executors = [
            pid for pid, text in below if "CoarseGrainedExecutorBackend" in text and "java" in text.partition(" ")[0]
        ]
        with suppress(ProcessLookupError):
            os.kill(source.choice(executors), signal.SIGKILL) if executors else None
        return [what] * bool(executors)
    java = [pid for pid, text in below if "java" in text.partition(" ")[0]]
    workers = [pid for pid, text in below if "pyspark" in text and pid not in java]
    if what == "everything" or (what == "jvm" and not java) or (what == "worker" and not workers):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return ["everything"]
    target = {"driver": process.pid, "jvm": java[0] if java else 0, "worker": source.choice(workers) if workers else 0}[
        what
    ]
    with suppress(ProcessLookupError):
        os.kill(target, signal.SIGKILL)
    return [what]


def fill(queues, queue: str, count: int, headers: str) -> None:
    """Store `count` messages whose bodies are their numbers."""
    with queues.connect() as database:
        database.driver_connection.execute(
            f"INSERT INTO public.\"{queue}\" (id, headers, body) SELECT gen_random_uuid(), %s, convert_to(n::text, 'UTF8')"
            " FROM generate_series(1, %s) AS n",
            (headers, count),
        )
