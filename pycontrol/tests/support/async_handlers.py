"""`async def` handlers, and plain ones for slots, for tests of workers. Worker processes import this module.

What a message asks for stands in its body. Each handler writes into the table `handled`, in the message's transaction.
"""

import asyncio
import logging
import os
import signal
import time
from datetime import timedelta
from pathlib import Path

from rowpost.endpoint.endpoint import Endpoint
from rowpost.recoverability.policy import Recoverability

logger = logging.getLogger("shop")


async def _note(message, connection) -> None:
    mark = "%s" if type(connection).__module__.startswith("psycopg") else "?"
    cursor = await connection.execute(
        f"INSERT INTO handled (id, body) VALUES ({mark}, {mark})",
        (str(message.id), message.body) if mark == "%s" else str(message.id),
        *(() if mark == "%s" else (message.body,)),
    )
    await cursor.close()


async def note(message, connection):
    """Record the message's id."""
    await _note(message, connection)


def _begin(message) -> Path:
    path = Path(message.body.decode())
    Path(f"{path}.{os.getpid()}-{message.id}").touch()
    return path


async def wait_for_file(message, connection):
    """Create the file <body>.<pid>-<id>, and continue when the file <body> exists."""
    await _note(message, connection)
    path = _begin(message)
    logger.info("waits")
    while not path.exists():
        await asyncio.sleep(0.01)


def wait_for_file_in_thread(message, connection):
    """As `wait_for_file`, as a plain function."""
    mark = "%s" if type(connection).__module__.startswith("psycopg") else "?"
    connection.execute(f"INSERT INTO handled (id, body) VALUES ({mark}, {mark})", (str(message.id), message.body))
    path = _begin(message)
    logger.info("waits")
    while not path.exists():
        time.sleep(0.01)


async def clean_up(message, connection):
    """Wait until the task is cancelled, and then create the file <body>-cleaned."""
    await _note(message, connection)
    path = _begin(message)
    try:
        await asyncio.sleep(600)
    finally:
        Path(f"{path}-cleaned").touch()


async def die(message, connection):
    """Kill the process for `bad…`; else wait a little, so that several messages are in flight."""
    await _note(message, connection)
    await asyncio.sleep(0.05)
    if message.body.startswith(b"bad"):
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.05)


async def hang(message, connection):
    """Hang for `bad…`."""
    await _note(message, connection)
    if message.body.startswith(b"bad"):
        await asyncio.sleep(600)


async def refuse_to_end(message, connection):
    """Hang for `bad…`, although the task is cancelled."""
    await _note(message, connection)
    while message.body.startswith(b"bad"):
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            logger.info("is cancelled")


def hang_in_thread(message, connection):
    """Hang for `bad…`, as a plain function; then write again, which cannot be committed any more."""
    mark = "%s" if type(connection).__module__.startswith("psycopg") else "?"
    write = f"INSERT INTO handled (id, body) VALUES ({mark}, {mark})"
    if message.body.startswith(b"bad"):
        time.sleep(3)
    connection.execute(write, (str(message.id), message.body))


async def block(message, connection):
    """Block the event loop."""
    await _note(message, connection)
    time.sleep(2.5)


#: no retries
once = Recoverability(immediate_retries=0, delayed_retries=0)
tasks = Endpoint("Tasks", concurrency=20, recoverability=once)
two = Endpoint("Two", concurrency=2, limit=5, recoverability=once)


@tasks.handles_everything
async def handle_task(message, context):
    await _note(context.incoming, context.connection)


@two.handles_everything
async def handle_two(message, context):
    await _note(context.incoming, context.connection)


#: leases its messages; a lease expires soon
leased = Endpoint(
    "Leased",
    receive="lease",
    lease_time=timedelta(seconds=2),
    recoverability=Recoverability(immediate_retries=5, delayed_retries=0),
)


@leased.handles_everything
async def hold_by_lease(message, context):
    """Wait for the file that the body names, and record the message at its commit; kill the process for `bad…`."""
    context.progress(0.5, "waits")
    if context.body.startswith(b"bad"):
        await asyncio.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    if context.body.startswith(b"/"):
        path = _begin(context.incoming)
        while not path.exists():
            await asyncio.sleep(0.01)
    async with context.commit() as connection:
        await _note(context.incoming, connection)
