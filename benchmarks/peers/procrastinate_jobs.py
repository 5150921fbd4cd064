"""procrastinate in the suite. Runs in the peers' virtual environment; suite/peers.py describes the commands.

A job executes one INSERT and sends one follow-up job in one transaction. The job itself is taken before and marked done
afterwards, each in a separate transaction: at least once, so the handler's work may be repeated. The fastest configuration
that was found: finished jobs are deleted, and ten jobs run concurrently on a pool of connections.
"""

import asyncio
import json
import sys
import time

import procrastinate
import uvloop

URL, WHAT, *REST = sys.argv[1:]
CONCURRENCY = 10

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=URL, min_size=CONCURRENCY, max_size=CONCURRENCY + 4)
)
ended = [0.0]  # when the last handler ended
waits: list[float] = []
free: list = []
places = asyncio.Semaphore(200)


@app.task(queue="follow", name="follow")
async def follow(number: int) -> None:
    """Stays in its queue."""


@app.task(queue="send", name="send")
async def sent(text: str) -> None:
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


@app.task(queue="work", name="timed")
async def timed(sent_at: float) -> None:
    waits.append(time.monotonic() - sent_at)


@app.task(queue="wait", name="waiting")
async def waiting(number: int) -> None:
    """Call the HTTP server of benchmarks/waiting.py, and insert a row."""
    async with places:
        reader, writer = free.pop() if free else await asyncio.open_connection("127.0.0.1", 8391)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"ok")
        free.append((reader, writer))
    async with app.connector.pool.connection() as connection:
        await connection.execute("INSERT INTO charged (id) VALUES (%s)", (str(number),))


async def wait() -> None:
    """Handle jobs that wait, 200 at a time, until the process is ended."""
    await app.run_worker_async(
        queues=["wait"],
        concurrency=200,
        delete_jobs="always",
        install_signal_handlers=False,
        fetch_job_polling_interval=1,
    )


async def work() -> None:
    """Drain the queue for each line of input."""
    print("ready", flush=True)
    while sys.stdin.readline():
        await app.run_worker_async(
            queues=["work"], concurrency=CONCURRENCY, wait=False, delete_jobs="always", listen_notify=False,
            install_signal_handlers=False,
        )  # fmt: skip
        print(ended[0], flush=True)


async def serve() -> None:
    """Wait for jobs as in production. For each line, send that many jobs with that many seconds between two."""
    working = asyncio.create_task(
        app.run_worker_async(queues=["work"], delete_jobs="always", install_signal_handlers=False)
    )
    await asyncio.sleep(1.0)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        count, gap = line.split()
        waits.clear()
        for _ in range(int(count)):
            await timed.defer_async(sent_at=time.monotonic())
            await asyncio.sleep(float(gap))
        while len(waits) < int(count):
            await asyncio.sleep(0.01)
        print(json.dumps(waits), flush=True)
    working.cancel()


async def send(count: int, batch: int) -> None:
    """Send jobs, one call for each batch. Print the seconds."""
    text = "x" * 490
    started = time.monotonic()
    for _ in range(count // batch):
        if batch == 1:
            await sent.defer_async(text=text)
        else:
            await sent.batch_defer_async(*[{"text": text}] * batch)
    print(time.monotonic() - started, flush=True)


async def main() -> None:
    async with app.open_async():
        if WHAT == "install":
            await app.schema_manager.apply_schema_async()
        elif WHAT == "fill":
            task, count = {"insert": insert, "no-op": nothing, "waiting": waiting}[REST[0]], int(REST[1])
            await task.batch_defer_async(*({"number": number} for number in range(count)))
        elif WHAT == "send":
            await send(int(REST[0]), int(REST[1]))
        else:
            await {"work": work, "serve": serve, "waiting": wait}[WHAT]()


uvloop.run(main())
