"""pgqueuer in the suite. Runs in the peers' virtual environment; suite/peers.py describes the commands.

A job executes one INSERT and sends one follow-up job in one transaction. The job itself is taken before and marked done
afterwards, in separate batches: at least once, so the handler's work may be repeated. The fastest configuration that was
found: asyncpg, uvloop, batches of 100, and concurrent handlers on a pool of ten connections.
"""

import asyncio
import json
import sys
import time

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

URL, WHAT, *REST = sys.argv[1:]
BATCH, POOL = 100, 10
ended = [0.0]  # when the last handler ended
waits: list[float] = []


def queuer(connection, pool) -> PgQueuer:
    """Create a queuer with the three kinds of jobs."""
    queuer = PgQueuer(AsyncpgDriver(connection))

    @queuer.entrypoint("insert")
    async def insert(job) -> None:
        async with pool.acquire() as own, own.transaction():
            await own.execute("INSERT INTO business (number) VALUES ($1)", int(job.payload))
            await Queries(AsyncpgDriver(own)).enqueue("follow", job.payload)
        ended[0] = time.monotonic()

    @queuer.entrypoint("no-op")
    async def nothing(job) -> None:
        ended[0] = time.monotonic()

    @queuer.entrypoint("timed")
    async def timed(job) -> None:
        waits.append(time.monotonic() - float(job.payload))

    return queuer


async def work() -> None:
    """Drain the queue for each line of input."""
    pool = await asyncpg.create_pool(URL, min_size=POOL, max_size=POOL)
    connection = await asyncpg.connect(URL)
    print("ready", flush=True)
    while sys.stdin.readline():
        await queuer(connection, pool).run(batch_size=BATCH, mode=QueueExecutionMode.drain)
        print(ended[0], flush=True)


async def serve() -> None:
    """Wait for jobs as in production. For each line, send that many jobs with that many seconds between two."""
    queries = Queries(AsyncpgDriver(await asyncpg.connect(URL)))
    pool = await asyncpg.create_pool(URL, min_size=1, max_size=POOL)
    working = asyncio.create_task(queuer(await asyncpg.connect(URL), pool).run())
    await asyncio.sleep(1.0)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        count, gap = line.split()
        waits.clear()
        for _ in range(int(count)):
            await queries.enqueue("timed", str(time.monotonic()).encode())
            await asyncio.sleep(float(gap))
        while len(waits) < int(count):
            await asyncio.sleep(0.01)
        print(json.dumps(waits), flush=True)
    working.cancel()


async def send(queries: Queries, count: int, batch: int) -> None:
    """Send jobs, one call for each batch. Print the seconds."""
    payload = b'{"Number":1,"Text":"' + b"x" * 490 + b'"}'
    started = time.monotonic()
    for _ in range(count // batch):
        if batch == 1:
            await queries.enqueue("send", payload)
        else:
            await queries.enqueue(["send"] * batch, [payload] * batch, [0] * batch)
    print(time.monotonic() - started, flush=True)


async def main() -> None:
    if WHAT in {"work", "serve"}:
        await {"work": work, "serve": serve}[WHAT]()
        return
    queries = Queries(AsyncpgDriver(await asyncpg.connect(URL)))
    if WHAT == "install":
        await queries.install()
    elif WHAT == "send":
        await send(queries, int(REST[0]), int(REST[1]))
    else:
        entrypoint, count = REST[0], int(REST[1])
        payloads = [b"%d" % number for number in range(count)]
        await queries.enqueue([entrypoint] * count, payloads, [0] * count)


uvloop.run(main())
