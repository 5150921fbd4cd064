"""The program that sends, with a row of its own in the same transaction."""

import psycopg
from examples.from_procrastinate.messages import ChargeCard

from rowpost import Endpoint

__all__ = ["place"]

# procrastinate: await charge.configure(connection=connection).defer_async(order_id=42)
shop = Endpoint("Shop", send_only=True)
shop.route(ChargeCard, to="Billing")


async def place(connection: psycopg.AsyncConnection, order_id: int) -> None:
    async with connection.transaction():
        await connection.execute("INSERT INTO placed (order_id) VALUES (%s)", (order_id,))
        async with shop.open(connection) as bus:
            bus.send(ChargeCard(order_id))
