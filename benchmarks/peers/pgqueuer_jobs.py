"""pgqueuer at the work of benchmarks/endpoint.py; runs in the peers' own virtual environment.

One job: one INSERT and one follow-up job in one transaction. The job itself is taken before and marked done after, in
batches of their own: at least once, and what the handler did may be done again. asyncpg, uvloop, batches of 100 and
handlers side by side on a pool of ten connections: the fastest that was found.
"""

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


async def work() -> None:
    last = 0.0
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(URL)))
    pool = await asyncpg.create_pool(URL, min_size=POOL, max_size=POOL)

    @queuer.entrypoint("insert")
    async def insert(job) -> None:
        nonlocal last
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute("INSERT INTO business (number) VALUES ($1)", int(job.payload))
            await Queries(AsyncpgDriver(connection)).enqueue("follow", job.payload)
        last = time.monotonic()

    @queuer.entrypoint("no-op")
    async def nothing(job) -> None:
        nonlocal last
        last = time.monotonic()

    print("ready", flush=True)
    sys.stdin.readline()
    await queuer.run(batch_size=BATCH, mode=QueueExecutionMode.drain)
    print(last, flush=True)


async def main() -> None:
    if WHAT == "work":
        await work()
        return
    queries = Queries(AsyncpgDriver(await asyncpg.connect(URL)))
    if WHAT == "install":
        await queries.install()
    else:
        entrypoint, count = REST[0], int(REST[1])
        payloads = [b"%d" % number for number in range(count)]
        await queries.enqueue([entrypoint] * count, payloads, [0] * count)


uvloop.run(main())
