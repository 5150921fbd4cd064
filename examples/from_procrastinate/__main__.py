"""Place an order: python -m examples.from_procrastinate 42"""

import asyncio
import sys
from pathlib import Path

import psycopg
from examples.from_procrastinate.shop import place

from rowpost import database_url, load_settings

FOLDER = Path(__file__).parent


async def main(order_id: int) -> None:
    url = database_url(load_settings(FOLDER / "shop.yml"))
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute((FOLDER / "tables.sql").read_bytes())
        await place(connection, order_id)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
