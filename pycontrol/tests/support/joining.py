"""Each kind of session and connection that `endpoint.open` joins, as an application uses it.

    with session(application) as (given, insert, commit):
        insert(1)
        with application.web.open(given) as bus:
            bus.send(Charge(1), to="Billing")
        commit()                                  # the next transaction begins

A block that ends without `commit` has rolled back. The same with `async with` and `await` for those of `ASYNC_WAYS`.

As a program, this module is an application that waits to be killed: before its commit, or after it.
"""

import asyncio
import json
import os
import sys
import time
from contextlib import asynccontextmanager, closing, contextmanager

import asyncpg
import psycopg
import pytest
from django.db import transaction
from sqlalchemy import orm, text
from sqlalchemy.ext import asyncio as asynchronous

from tests.support.applications import Application
from tests.support.fork_server import FORK_SERVER, Forked
from tests.support.orders import Charge

__all__ = [
    "ASYNC_WAYS", "WAYS", "asyncpg_alone", "asyncpg_pooled", "asyncpg_session", "asyncpg_sqlalchemy", "blocking_session",
    "connection", "django_atomic", "driver", "pooled", "psycopg_alone", "psycopg_session", "psycopg_sqlalchemy",
    "scoped_session", "session", "spawn_application",
]  # fmt: skip

FOREVER = 60.0  # seconds


@contextmanager
def session(application):
    """A `Session` of SQLAlchemy: the application commits."""
    engine = application.sqlalchemy()
    with orm.Session(engine) as made:
        yield made, lambda number: made.execute(text(application.row(number))), made.commit
    engine.dispose()


@contextmanager
def scoped_session(application):
    engine = application.sqlalchemy()
    made = orm.scoped_session(orm.sessionmaker(engine))
    yield made, lambda number: made.execute(text(application.row(number))), made.commit
    made.remove()
    engine.dispose()


@contextmanager
def connection(application):
    engine = application.sqlalchemy()
    with engine.connect() as made:
        yield made, lambda number: made.execute(text(application.row(number))), made.commit
    engine.dispose()


@contextmanager
def pooled(application):
    """What `engine.raw_connection()` returns."""
    engine = application.sqlalchemy()
    with closing(engine.raw_connection()) as made:
        yield made, lambda number: made.cursor().execute(application.row(number)), made.commit
    engine.dispose()


@contextmanager
def django_atomic(application):
    if application.engine != "postgresql":
        pytest.skip("Django has no driver for SQL Server of its own")
    made = application.django()

    def insert(number):
        with made.cursor() as cursor:
            cursor.execute(application.row(number))

    def begin():
        block = transaction.atomic()
        block.__enter__()
        return block

    blocks = [begin()]

    def commit():
        blocks.pop().__exit__(None, None, None)
        blocks.append(begin())

    try:
        yield made, insert, commit
    finally:
        made.set_rollback(True)
        blocks.pop().__exit__(None, None, None)
        made.close()


@contextmanager
def driver(application):
    with closing(application.connect()) as made:
        yield made, lambda number: made.execute(application.row(number)), made.commit


# ------------------------------------------------------------------ on an event loop
@asynccontextmanager
async def async_session(application, creator, url="postgresql+psycopg://"):
    engine = asynchronous.create_async_engine(url, async_creator=creator)
    async with asynchronous.AsyncSession(engine) as made:
        yield made, lambda number: made.execute(text(application.row(number))), made.commit
    await engine.dispose()


@asynccontextmanager
async def async_connection(application, creator, url="postgresql+psycopg://"):
    engine = asynchronous.create_async_engine(url, async_creator=creator)
    async with engine.connect() as made:
        yield made, lambda number: made.execute(text(application.row(number))), made.commit
    await engine.dispose()


def psycopg_session(application):
    return async_session(application, lambda: psycopg.AsyncConnection.connect(application.url))


def psycopg_sqlalchemy(application):
    return async_connection(application, lambda: psycopg.AsyncConnection.connect(application.url))


def asyncpg_session(application):
    return async_session(application, lambda: asyncpg.connect(application.url), "postgresql+asyncpg://")


def asyncpg_sqlalchemy(application):
    return async_connection(application, lambda: asyncpg.connect(application.url), "postgresql+asyncpg://")


@asynccontextmanager
async def asyncpg_alone(application):
    made = await asyncpg.connect(application.url)
    try:
        async with asyncpg_transactions(made) as commit:
            yield made, lambda number: made.execute(application.row(number)), commit
    finally:
        await made.close()


@asynccontextmanager
async def asyncpg_pooled(application):
    async with asyncpg.create_pool(application.url, min_size=1, max_size=1) as pool, pool.acquire() as made:
        async with asyncpg_transactions(made) as commit:
            yield made, lambda number: made.execute(application.row(number)), commit


@asynccontextmanager
async def asyncpg_transactions(made):
    """Yield what commits the transaction and begins the next one, which is rolled back at the end."""

    async def begin():
        block = made.transaction()
        await block.start()
        return block

    blocks = [await begin()]

    async def commit():
        await blocks.pop().commit()
        blocks.append(await begin())

    try:
        yield commit
    finally:
        await blocks.pop().rollback()


@asynccontextmanager
async def psycopg_alone(application):
    async with await psycopg.AsyncConnection.connect(application.url) as made:
        yield made, lambda number: made.execute(application.row(number)), made.commit
        await made.rollback()


@asynccontextmanager
async def blocking_session(application):
    """A `Session` that is used on an event loop."""
    with session(application) as (made, insert, commit):
        yield (
            made,
            lambda number: asyncio.to_thread(insert, number),
            lambda: asyncio.to_thread(commit),
        )


WAYS = [session, scoped_session, connection, pooled, django_atomic, driver]
ASYNC_WAYS = [
    psycopg_session, psycopg_sqlalchemy, asyncpg_session, asyncpg_sqlalchemy, asyncpg_alone, asyncpg_pooled, psycopg_alone,
    blocking_session,
]  # fmt: skip


# ------------------------------------------------------------------ an application that is killed
def spawn_application(application, way, moment) -> Forked:
    """Start a process that writes a row and sends a message by one of the ways.

    It says "stored" when the block of its bus has ended, and "committed" when its commit has returned. At the moment of
    that name it stays, until it is killed.
    """
    arguments = {"engine": application.engine, "url": application.url, "way": way.__name__, "moment": moment}
    path = os.pathsep.join(filter(None, sys.path))
    return FORK_SERVER.start(
        ["-m", "tests.support.joining", json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
        stdout=-1,
        text=True,
    )


def main(engine, url, way, moment):
    application, way = Application(engine, url), globals()[way]

    def reached(name):
        print(name)
        if name == moment:
            time.sleep(FOREVER)

    if way in WAYS:
        with way(application) as (given, insert, commit):
            insert(1)
            with application.web.open(given) as bus:
                bus.send(Charge(1), to="Billing")
            reached("stored")
            commit()
            reached("committed")
        return

    async def program():
        async with way(application) as (given, insert, commit):
            await insert(1)
            async with application.web.open(given) as bus:
                bus.send(Charge(1), to="Billing")
            reached("stored")
            await commit()
            reached("committed")

    asyncio.run(program())


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
