"""Place an order: python -m examples.from_celery 42"""

import sys
from pathlib import Path

import psycopg
from examples.from_celery.shop import place

from rowpost import database_url, load_settings

FOLDER = Path(__file__).parent

if __name__ == "__main__":
    with psycopg.connect(database_url(load_settings(FOLDER / "shop.yml")), autocommit=True) as connection:
        connection.execute((FOLDER / "tables.sql").read_bytes())
        place(connection, int(sys.argv[1]))
