"""Programs that are killed at random until enough is enough: for tests that nothing is lost and nothing doubled."""

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

__all__ = ["ROWPOST", "children", "fill", "kill_until_done", "python_of"]

PATIENCE = 240.0  # seconds that a life may take until it has done something
MOST_LIVES = 80
#: the program rowpost, of whichever checkout PYTHONPATH names
ROWPOST = "from rowpost.cli import main; main()"


def python_of(code_path: Path) -> dict[str, str]:
    """The environment of such a program: this checkout's package."""
    path = os.pathsep.join([str(code_path), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def children(pid: int) -> list[tuple[int, str]]:
    """Processes below one, with the first word of their command line."""
    found, parents = [], {pid}
    listing = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listing.splitlines()]
    grown = True
    while grown:
        grown = False
        for row in rows:
            if int(row[1]) in parents and int(row[0]) not in parents:
                parents.add(int(row[0]))
                found.append((int(row[0]), row[2] if len(row) > 2 else ""))
                grown = True
    return found


def kill_until_done(
    arguments: Sequence[str], environment: dict[str, str], marks: Callable[[], object], *, kills: int, longest: float, log: Path, seed: int
) -> Counter[str]:
    """Starts a program again and again, and kills it, or its JVM, or one of its workers, at random, `kills` times at
    least; then lets it come to its end. Returns how often what was killed.

    It is hit when `marks()` has changed, that is, when it has done something, and up to `longest` seconds later.
    """
    chance, killed, lives = random.Random(seed), Counter(), 0
    while True:
        lives += 1
        assert lives < MOST_LIVES, f"it never came to its end: {killed}"
        before = marks()
        with log.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", ROWPOST, *arguments], env=environment, stdout=out, stderr=out, start_new_session=True
            )
        try:
            while process.poll() is None and sum(killed.values()) < kills:
                end = time.monotonic() + PATIENCE
                while process.poll() is None and marks() == before and time.monotonic() < end:
                    time.sleep(0.02)
                time.sleep(chance.uniform(0, longest))
                before = marks()  # a worker's death is not that of the whole: it goes on, and is hit again
                if process.poll() is None:
                    killed.update(_kill(process, chance))
                    print(f"life {lives}, {dict(killed)}, {before}", flush=True)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(timeout=0.5)
            code = process.wait(timeout=PATIENCE * 3)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code == 0:
            return killed


def _kill(process: subprocess.Popen, chance: random.Random) -> list[str]:
    """All of them at once, the driver alone, the JVM alone, or a Python worker alone."""
    below = children(process.pid)
    java = [pid for pid, text in below if "java" in text.partition(" ")[0]]
    workers = [pid for pid, text in below if "pyspark" in text and pid not in java]
    what = chance.choice(["everything", "driver", "jvm", "worker", "worker", "worker"])
    if what == "everything" or (what == "jvm" and not java) or (what == "worker" and not workers):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return ["everything"]
    victim = {"driver": process.pid, "jvm": java[0] if java else 0, "worker": chance.choice(workers) if workers else 0}[what]
    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    return [what]


def fill(queues, queue: str, count: int, headers: str) -> None:
    """So many messages, whose bodies are their numbers."""
    with queues.connect() as database:
        database.driver_connection.execute(
            f'INSERT INTO public."{queue}" (id, headers, body) SELECT gen_random_uuid(), %s, convert_to(n::text, \'UTF8\')'
            " FROM generate_series(1, %s) AS n",
            (headers, count),
        )
