"""Count the requests of an archive in an object store: `PYTHONPATH=pycontrol python -m benchmarks.object_store --batches 60`.

It runs `rowpost spark archive --every` against an S3 server on this machine (moto), sends messages before each batch, and counts the
server's requests after the first batches. Merges of small files are part of the count, because they come with every tenth batch.
`compact` is counted at the end. It needs the extra `dev`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.support.spark.killing import ROWPOST, python_of
from tests.support.spark.messages import audit_row
from tests.support.spark.object_store import BUCKET, ObjectStore, object_store
from tests.support.spark.outages import own_server
from tests.support.spark.queues import Queues

ROOT = Path(__file__).parents[1]
OUT = f"s3a://{BUCKET}/archive"
KINDS = ("PUT", "POST", "LIST", "GET", "HEAD", "DELETE")
DAY_BATCHES = 8640
WARM_UP = 3
IDLE_S = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=60, help="batches that are counted")
    parser.add_argument("--messages", type=int, default=100, help="messages in each batch")
    asked = parser.parse_args()
    with object_store() as store, own_server() as (_, queues), tempfile.TemporaryDirectory() as folder:
        queue = queues.make("audit")
        found, idle = archive(store, queues, queue, Path(folder), asked.batches, asked.messages)
        print(f"{asked.batches} batches of {asked.messages} messages, on one day of the archive")
        show("a batch", {kind: found[kind] / asked.batches for kind in KINDS})
        show("a day, --every 10s", {kind: found[kind] / asked.batches * DAY_BATCHES for kind in KINDS})
        show(f"{IDLE_S} intervals of a second without messages", idle)
        before = store.requests()
        subprocess.run([*rowpost(queues), "compact", OUT], env=variables(store), check=True, capture_output=True)
        show("compact", store.requests() - before)
        sizes = [
            each["Size"]
            for each in store.client().list_objects_v2(Bucket=BUCKET, Prefix="archive/queue=").get("Contents", ())
        ]
        print(f"{sum(sizes) / (asked.batches + WARM_UP) / asked.messages:.0f} bytes a message in {len(sizes)} files")


def archive(
    store: ObjectStore, queues: Queues, queue: str, folder: Path, batches: int, messages: int
) -> tuple[Counter[str], Counter[str]]:
    """Run the archiver for so many batches. Return its requests after the warm-up, and those of some intervals without messages."""
    command = [*rowpost(queues), "archive", queue, OUT, "--every", "1s", "--checkpoint", str(folder / "c")]
    process = subprocess.Popen(command, env=variables(store), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        before: Counter[str] = Counter()
        for number in range(batches + WARM_UP):
            if number == WARM_UP:
                before = store.requests()
            queues.send(queue, [os.urandom(512) for _ in range(messages)], audit_row(f"m{number}")[5])
            wait_for(lambda number=number: committed(folder) > number)
        time.sleep(5)  # the merge after the last batch
        busy = store.requests()
        time.sleep(IDLE_S)
        return busy - before, store.requests() - busy
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def committed(folder: Path) -> int:
    return sum(path.name.isdecimal() for path in (folder / "c" / "commits").glob("*"))


def rowpost(queues: Queues) -> list[str]:
    return [sys.executable, "-c", ROWPOST, "--env", queues.environment, "spark"]


def variables(store: ObjectStore) -> dict[str, str]:
    return {**python_of(ROOT / "pycontrol"), **store.variables}


def wait_for(condition) -> None:
    end = time.monotonic() + 300
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the archiver made no progress for five minutes")
        time.sleep(0.1)


def show(what: str, numbers: dict[str, float]) -> None:
    cells = " | ".join(f"{numbers.get(kind, 0):,.1f}".removesuffix(".0") for kind in KINDS)
    print(f"| {what} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
