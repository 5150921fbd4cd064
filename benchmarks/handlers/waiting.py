"""Handlers that call an HTTP server, and insert a row. One client per process, which allows 200 connections."""

import asyncio
import threading
from http.client import HTTPConnection

from rowpost.endpoint.endpoint import Endpoint

PORT = 8391
CONNECTIONS = 200
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
INSERT = "INSERT INTO charged (id) VALUES (%s)"

tasks = Endpoint("Tasks", concurrency=CONNECTIONS)
threads = Endpoint("Threads", concurrency=CONNECTIONS)
leases = Endpoint("Leases", concurrency=CONNECTIONS, receive="lease")
_free: list = []
_places = asyncio.Semaphore(CONNECTIONS)
_local = threading.local()


async def call() -> None:
    """Call the server, and wait for its answer."""
    async with _places:
        reader, writer = _free.pop() if _free else await asyncio.open_connection("127.0.0.1", PORT)
        writer.write(REQUEST)
        await reader.readuntil(b"ok")
        _free.append((reader, writer))


@tasks.handles_everything
async def charge(message, context):
    await call()
    await context.connection.execute(INSERT, [str(context.incoming.id)])


@leases.handles_everything
async def charge_by_lease(message, context):
    await call()
    async with context.commit() as connection:
        await connection.execute(INSERT, [str(context.incoming.id)])


@threads.handles_everything
def charge_in_thread(message, context):
    client = getattr(_local, "client", None)
    if client is None:
        client = _local.client = HTTPConnection("127.0.0.1", PORT)
    client.request("GET", "/")
    client.getresponse().read()
    context.connection.execute(INSERT, [str(context.incoming.id)])
