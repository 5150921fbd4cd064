"""`endpoint.open` joins the transaction of what an application already has: SQLAlchemy's, Django's, asyncpg's, psycopg's.

Each way writes a business row, sends, and ends the application's own transaction by its own verb.
"""

import asyncio
import signal
import threading

import asyncpg
import django
import psycopg
import pytest
import sqlalchemy
from django.db import transaction
from sqlalchemy import orm, text
from sqlalchemy.ext import asyncio as asynchronous

from rowpost.errors import QueueNotFound, SettingsError
from tests.support.applications import Shop
from tests.support.joining import ASYNC_WAYS, WAYS, spawn_application
from tests.support.orders import Charge
from tests.support.workers import eventually


class Refused(Exception):
    """What a business rule raises."""


@pytest.fixture
def shop(database, queue, sql, target):
    sql.run("DROP TABLE IF EXISTS business")
    sql.run("CREATE TABLE business (number integer NOT NULL)")
    sql.empty("Billing")
    return Shop(database, sql, target)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.promise("joins-callers-transaction", "joins-sessions-of-other-packages")
def test_what_is_sent_commits_with_the_applications_transaction(shop, way):
    with way(shop) as (given, insert, commit):
        insert(1)
        with shop.web.open(given) as bus:
            bus.send(Charge(1), to="Billing")
            bus.send(Charge(2), to="Billing")
        before = shop.stored if shop.engine == "postgresql" else (0, 0)  # SQL Server's reader would wait
        commit()

    assert (before, shop.stored) == ((0, 0), (1, 2))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.promise("joins-sessions-of-other-packages")
def test_what_is_sent_before_any_sql_commits_with_the_applications_transaction(shop, way):
    with way(shop) as (given, insert, commit):
        with shop.web.open(given) as bus:
            bus.send(Charge(1), to="Billing")
        insert(1)
        commit()

    assert shop.stored == (1, 1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.promise("joins-sessions-of-other-packages")
def test_an_application_that_does_not_commit_sends_nothing(shop, way):
    with way(shop) as (given, insert, _):
        insert(1)
        with shop.web.open(given) as bus:
            bus.send(Charge(1), to="Billing")

    assert shop.stored == (0, 0)


@pytest.mark.parametrize("way", WAYS)
def test_a_block_that_fails_sends_nothing_and_the_transaction_goes_on(shop, way):
    with way(shop) as (given, insert, commit):
        with pytest.raises(Refused), shop.web.open(given) as bus:
            bus.send(Charge(1), to="Billing")
            raise Refused
        insert(1)
        commit()

    assert shop.stored == (1, 0)


@pytest.mark.parametrize("way", WAYS)
def test_a_queue_that_is_missing_is_said_with_its_name(shop, way):
    with (
        way(shop) as (given, _, _),
        pytest.raises(QueueNotFound, match="Nowhere"),
        shop.web.open(given) as bus,
    ):
        bus.send(Charge(1), to="Nowhere")


def test_without_a_transaction_of_sqlalchemy_all_of_a_block_is_sent_at_its_end(shop):
    engine = shop.sqlalchemy(isolation_level="AUTOCOMMIT")
    with engine.connect() as made, shop.web.open(made) as bus:
        bus.send(Charge(1), to="Billing")
        bus.send(Charge(2), to="Billing")
    engine.dispose()

    assert shop.stored == (0, 2)


def test_outside_of_atomic_all_of_a_block_is_sent_at_its_end(shop):
    if shop.engine != "postgresql":
        pytest.skip("Django has no driver for SQL Server of its own")
    made = shop.django()
    with shop.web.open(made) as bus:
        bus.send(Charge(1), to="Billing")
        bus.send(Charge(2), to="Billing")
    stored = shop.stored
    made.close()

    assert stored == (0, 2)


def test_the_proxy_that_django_exports_is_its_connection(shop):
    if shop.engine != "postgresql":
        pytest.skip("Django has no driver for SQL Server of its own")
    made = shop.django()
    with transaction.atomic(), shop.web.open(django.db.connection) as bus:
        bus.send(Charge(1), to="Billing")
    made.close()

    assert shop.stored == (0, 1)


# ------------------------------------------------------------------ on an event loop
@pytest.fixture
def postgresql(shop):
    if shop.engine != "postgresql":
        pytest.skip("SQL Server has no async driver here")
    return shop


@pytest.mark.parametrize("way", ASYNC_WAYS)
@pytest.mark.parametrize("order", ["SQL first", "bus first", "bus only"])
@pytest.mark.promise("joins-sessions-of-other-packages")
def test_what_is_sent_on_an_event_loop_commits_with_the_applications_transaction(postgresql, way, order):
    async def program():
        async with way(postgresql) as (given, insert, commit):
            if order == "SQL first":
                await insert(1)
            async with postgresql.web.open(given) as bus:
                bus.send(Charge(1), to="Billing")
                bus.send(Charge(2), to="Billing")
            before = postgresql.stored
            if order == "bus first":
                await insert(1)
            await commit()
        return before

    assert asyncio.run(program()) == (0, 0)
    assert postgresql.stored == (int(order != "bus only"), 2)


@pytest.mark.parametrize("way", ASYNC_WAYS)
@pytest.mark.promise("joins-sessions-of-other-packages")
def test_an_application_on_an_event_loop_that_does_not_commit_sends_nothing(postgresql, way):
    async def program():
        async with way(postgresql) as (given, insert, _):
            await insert(1)
            async with postgresql.web.open(given) as bus:
                bus.send(Charge(1), to="Billing")

    asyncio.run(program())

    assert postgresql.stored == (0, 0)


@pytest.mark.parametrize("way", ASYNC_WAYS)
def test_a_block_on_an_event_loop_that_fails_sends_nothing_and_the_transaction_goes_on(postgresql, way):
    async def program():
        async with way(postgresql) as (given, insert, commit):
            with pytest.raises(Refused):
                async with postgresql.web.open(given) as bus:
                    bus.send(Charge(1), to="Billing")
                    raise Refused
            await insert(1)
            await commit()

    asyncio.run(program())

    assert postgresql.stored == (1, 0)


@pytest.mark.parametrize("way", ASYNC_WAYS)
def test_a_task_that_is_cancelled_while_it_sends_rolls_back_what_it_sends(postgresql, way, monkeypatch):
    """The calls in the other thread end first: none of them may come behind the roll-back, and be stored by itself."""
    web, sends, may_send = postgresql.web, threading.Event(), threading.Event()
    send = web.dispatch

    def slowly(*arguments, **options):
        sends.set()
        may_send.wait(10)
        send(*arguments, **options)

    monkeypatch.setattr(web, "dispatch", slowly)

    async def place():
        async with way(postgresql) as (given, insert, _):
            await insert(1)
            async with web.open(given) as bus:
                bus.send(Charge(1), to="Billing")

    async def program():
        task = asyncio.create_task(place())
        await asyncio.to_thread(sends.wait, 10)
        task.cancel()
        await asyncio.sleep(0.05)
        task.cancel()
        threading.Timer(0.05, may_send.set).start()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(program())

    assert postgresql.stored == (0, 0)


@pytest.mark.parametrize("way", ASYNC_WAYS)
def test_a_queue_that_is_missing_is_said_on_an_event_loop_too(postgresql, way):
    async def program():
        async with way(postgresql) as (given, _, _):
            async with postgresql.web.open(given) as bus:
                bus.send(Charge(1), to="Nowhere")

    with pytest.raises(QueueNotFound, match="Nowhere"):
        asyncio.run(program())


@pytest.mark.parametrize(
    "creator", [lambda url: asyncpg.connect(url), lambda url: psycopg.AsyncConnection.connect(url, autocommit=True)]
)
def test_without_a_transaction_on_an_event_loop_all_of_a_block_is_sent_at_its_end(postgresql, creator):
    async def program():
        given = await creator(postgresql.url)
        async with postgresql.web.open(given) as bus:
            bus.send(Charge(1), to="Billing")
            bus.send(Charge(2), to="Billing")
        with pytest.raises(QueueNotFound):
            async with postgresql.web.open(given) as bus:
                bus.send(Charge(3), to="Billing")
                bus.send(Charge(4), to="Nowhere")
        await given.close()

    asyncio.run(program())

    assert postgresql.stored == (0, 2)


def test_an_event_is_published_through_asyncpg(postgresql):
    postgresql.database.call("subscribe", endpoint="Billing", queue_address="Billing", topic="Shop.Charge")

    async def program():
        given = await asyncpg.connect(postgresql.url)
        async with given.transaction():
            async with postgresql.web.open(given) as bus:
                bus.publish(Charge(1))
                bus.send(b"", to="Billing", headers={"Shop.Umlaut": "ä漢🚀"})
                assert bus.connection is given
        await given.close()

    asyncio.run(program())
    postgresql.database.call("unsubscribe", endpoint="Billing", topic="Shop.Charge")

    assert postgresql.stored == (0, 2)


# ------------------------------------------------------------------ an application that is killed
@pytest.fixture
def watched(shop):
    if shop.engine != "postgresql":
        pytest.skip("what an open transaction has written is seen by PostgreSQL's locks")
    return shop


def held(shop):
    """Whether a session has written a row and a message, and has not ended its transaction."""
    tables = "'business'::regclass, '\"Billing\"'::regclass"
    locks = f"SELECT COUNT(DISTINCT relation) FROM pg_locks WHERE mode = 'RowExclusiveLock' AND relation IN ({tables})"
    return shop.sql.value(locks) == 2


@pytest.mark.parametrize("way", [*WAYS, *ASYNC_WAYS])
@pytest.mark.promise("joins-sessions-of-other-packages")
def test_an_application_that_is_killed_before_its_commit_has_stored_neither_the_row_nor_the_message(watched, way):
    killed = spawn_application(watched, way, "stored")
    said = killed.stdout.readline()
    before = held(watched)
    killed.kill()

    assert (said, before, killed.wait(30)) == ("stored\n", True, -signal.SIGKILL)
    eventually(lambda: not held(watched), "the server ends the session of the process that was killed")
    assert watched.stored == (0, 0)


@pytest.mark.parametrize("way", [*WAYS, *ASYNC_WAYS])
@pytest.mark.promise("joins-sessions-of-other-packages")
def test_an_application_that_is_killed_when_its_commit_has_returned_has_stored_both(watched, way):
    killed = spawn_application(watched, way, "committed")
    said = [killed.stdout.readline(), killed.stdout.readline()]
    killed.kill()

    assert (said, killed.wait(30)) == (["stored\n", "committed\n"], -signal.SIGKILL)
    assert watched.stored == (1, 1)


# ------------------------------------------------------------------ what cannot be joined
def test_what_is_no_connection_is_refused_with_what_to_pass(shop):
    engine = shop.sqlalchemy()
    asynchronous_engine = asynchronous.create_async_engine("postgresql+psycopg://", async_creator=lambda: None)
    cases = [
        (engine, "with engine.begin"),
        (orm.sessionmaker(engine), "with sessions.begin"),
        (asynchronous_engine, "async with engine.begin"),
        (asynchronous.AsyncSession(asynchronous_engine), "AsyncSession is asynchronous"),
        (text("SELECT 1"), "sqlalchemy's TextClause is not a connection"),
        (transaction.atomic(), "django's Atomic is not a connection"),
        (sqlalchemy.create_engine("sqlite://").connect(), "sqlite3's Connection is not a connection"),
    ]
    for given, words in cases:
        with pytest.raises(SettingsError, match=words), shop.web.open(given):
            pass
    engine.dispose()


def test_a_connection_of_a_loop_is_refused_without_one(postgresql):
    async def program():
        given = await asyncpg.connect(postgresql.url)
        other = await psycopg.AsyncConnection.connect(postgresql.url)
        for each in (given, other):
            with (
                pytest.raises(SettingsError, match=r"is asynchronous\. Write `async with endpoint"),
                postgresql.web.open(each),
            ):
                pass
        await given.close()
        await other.close()

    asyncio.run(program())
