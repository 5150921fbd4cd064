"""A handler that works for as long as its message says, and then commits a row: with a lease, and within a transaction."""

import asyncio

from rowpost.endpoint.endpoint import Endpoint

INSERT = "INSERT INTO reported (id) VALUES (%s)"

leases = Endpoint("Leases", concurrency=4, receive="lease")
tasks = Endpoint("Tasks", concurrency=4)


@leases.handles_everything
async def report(message, context):
    await asyncio.sleep(float(message))
    async with context.commit() as connection:
        await connection.execute(INSERT, [str(context.incoming.id)])


@tasks.handles_everything
async def report_in_transaction(message, context):
    await asyncio.sleep(float(message))
    await context.connection.execute(INSERT, [str(context.incoming.id)])
