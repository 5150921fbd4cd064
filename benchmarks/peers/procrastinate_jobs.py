"""procrastinate at the work of benchmarks/endpoint.py; runs in the peers' own virtual environment.

One job: one INSERT and one follow-up job in one transaction. The job itself is taken before and marked done after, each
in a transaction of its own: at least once, and what the handler did may be done again. Finished jobs are deleted, ten
run side by side on a pool of connections: the fastest that was found.
"""

import sys
import time

import procrastinate
import uvloop

URL, WHAT, *REST = sys.argv[1:]
CONCURRENCY = 10

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=URL, min_size=CONCURRENCY, max_size=CONCURRENCY + 4))
ended = [0.0]  # when the last handler ended


@app.task(queue="follow", name="follow")
async def follow(number: int) -> None:
    """Stays in its queue."""


@app.task(queue="work", name="insert")
async def insert(number: int) -> None:
    async with app.connector.pool.connection() as connection, connection.transaction():
        await connection.execute("INSERT INTO business (number) VALUES (%s)", (number,))
        await follow.configure(connection=connection).defer_async(number=number)
    ended[0] = time.monotonic()


@app.task(queue="work", name="nothing")
async def nothing(number: int) -> None:
    ended[0] = time.monotonic()


async def main() -> None:
    async with app.open_async():
        if WHAT == "install":
            await app.schema_manager.apply_schema_async()
        elif WHAT == "fill":
            task, count = {"insert": insert, "no-op": nothing}[REST[0]], int(REST[1])
            await task.batch_defer_async(*({"number": number} for number in range(count)))
        else:
            print("ready", flush=True)
            sys.stdin.readline()
            await app.run_worker_async(
                queues=["work"], concurrency=CONCURRENCY, wait=False, delete_jobs="always", listen_notify=False
            )
            print(ended[0], flush=True)


uvloop.run(main())
