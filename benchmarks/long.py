"""Measure what a handler of many minutes holds open: a message with a lease, and the same within its transaction.

    python -m benchmarks.long [--minutes 10] [--output FILE]

For each way to receive: the age of the oldest transaction of the database while the handler works, looked at ten times a second, the most
connections, and the rows that the handler has committed, which must be one. Both work at the same time, each in a database of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.suite.server import Place, Server
from benchmarks.suite.workers import ROOT
from rowpost.settings.environment import QueueSettings

QUEUES = {"lease": ("Leases", "leases"), "transaction": ("Tasks", "tasks")}
EVERY_S = 0.1
#: for the start of `rowpost run`, and for the handler's end
SPARE_S = 60.0
LOOKED = """
    SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8, count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def measure(place: Place, way: str, seconds: float) -> dict[str, float]:
    """Return the figures of one handler that works for so many seconds."""
    queue, name = QUEUES[way]
    place.sql("CREATE TABLE reported (id text NOT NULL)")
    place.fill(queue, 1, str(seconds).encode())
    with tempfile.TemporaryDirectory() as folder:
        environments = Path(folder) / "deploy" / "environments"
        environments.mkdir(parents=True)
        (environments / "long.yml").write_text(
            f"engine: postgresql\nurl: {place.url}\nqueues:\n  {queue}: {{lease: {str(way == 'lease').lower()}}}\n  error: {{}}\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "rowpost", "--env", "long", "run", f"benchmarks.handlers.long:{name}"],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "pycontrol")])},
        )  # fmt: skip
        oldest, most, looks, started = 0.0, 0, 0, time.monotonic()
        try:
            while not (rows := place.value("SELECT count(*) FROM reported")):
                if time.monotonic() > started + seconds + SPARE_S:
                    raise TimeoutError(f"{way}: the handler did not end within {seconds + SPARE_S:.0f} s")
                age, connections = place.sql(LOOKED).fetchone()
                oldest, most, looks = max(oldest, age), max(most, connections), looks + 1
                time.sleep(EVERY_S)
            worked = time.monotonic() - started
        finally:
            process.terminate()
            process.wait(SPARE_S)
    rows = place.value("SELECT count(*) FROM reported")
    return {"seconds": worked, "oldest_s": oldest, "connections": most, "rows": rows, "looks": looks}


def main() -> None:
    """Measure, print a table, and write the data."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--minutes", type=float, default=10.0)
    options.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "long.json")
    given = options.parse_args()
    found: dict[str, dict[str, float]] = {}

    def one(server: Server, way: str) -> None:
        with server.place(way, QueueSettings(QUEUES[way][0], lease=way == "lease")) as place:
            found[way] = measure(place, way, given.minutes * 60)

    with tempfile.TemporaryDirectory() as data:
        server = Server(Path(data))
        try:
            threads = [threading.Thread(target=one, args=(server, way)) for way in QUEUES]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            server.stop()
    if missing := QUEUES.keys() - found.keys():
        raise SystemExit(f"Not measured: {', '.join(sorted(missing))}.")
    print(
        "| received by | seconds with its start | oldest transaction, s | connections | rows | looks |\n|---|---|---|---|---|---|"
    )
    for way, each in found.items():
        print(
            f"| {way} | {each['seconds']:.0f} | {each['oldest_s']:.2f} | {each['connections']} | {each['rows']} | {each['looks']} |"
        )
    given.output.write_text(json.dumps({"minutes": given.minutes, "found": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
