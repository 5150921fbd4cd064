"""`context.session` and `context.django()`: an ORM's work commits with the message, and its transactions are savepoints."""

import asyncio
import re
import sys
from dataclasses import dataclass
from functools import cache

import pytest
from sqlalchemy import ForeignKey, select, text
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncAttrs
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, selectinload

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import HandlerEnded, SettingsError
from rowpost.handling import mapped_session
from rowpost.pipeline.batch_size import batch_size
from rowpost.pipeline.batches import Batches
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.sagas.declaration import Saga, starts
from rowpost.testing import SagaTest
from rowpost.transport.queue import Queue
from tests.support.applications import Shop
from tests.support.orders import Charge, Order

#: warnings of what was neither awaited nor returned
UNTIDY = re.compile("never awaited|garbage collector")
ONCE = Recoverability(immediate_retries=0, delayed_retries=0)


class Base(AsyncAttrs, DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customer"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str]
    orders: Mapped[list["Placed"]] = relationship(back_populates="customer")


class Placed(Base):
    __tablename__ = "placed"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    customer_id: Mapped[int] = mapped_column(ForeignKey("customer.id"))
    customer: Mapped[Customer] = relationship(back_populates="orders")


@pytest.fixture
def work(database, queue, sql, target):
    for statement in (
        "DROP TABLE IF EXISTS placed",
        "DROP TABLE IF EXISTS customer",
        "CREATE TABLE customer (id integer NOT NULL PRIMARY KEY, name varchar(100) NOT NULL)",
        "CREATE TABLE placed (id integer NOT NULL PRIMARY KEY, customer_id integer NOT NULL REFERENCES customer (id))",
        "INSERT INTO customer VALUES (7, 'Ada')",
        "DELETE FROM rowpost.failure",
    ):
        sql.run(statement)
    for name in ("Billing", "error"):
        sql.empty(name)
    return Work(database, queue, sql, target)


class Work:
    def __init__(self, database, queue, sql, target):
        self.database, self.queue, self.sql, self.target = database, queue, sql, target

    def does(self, *handlers, numbers=(1,), **options):
        """Let an endpoint handle orders; return its outcomes."""
        endpoint = Endpoint("Sales", **{"recoverability": ONCE, **options})
        for each in handlers:
            endpoint.handles("Shop.Order", Order)(each)
        return self.handled(endpoint, numbers)

    def handled(self, endpoint, numbers=(1,)):
        with endpoint.open(self.database) as bus:
            for number in numbers:
                bus.send(Order(number), to="Sales")
        if endpoint.leases:
            return [endpoint.process_one(self.database) for _ in numbers]
        pipeline = Pipeline(self.database, "Sales", endpoint, reconnect=self.database.open_second)
        return [pipeline.process_one() for _ in numbers]

    @property
    def stored(self):
        """Numbers of placed orders, and how many messages were sent."""
        return sorted(row[0] for row in self.sql.run("SELECT id FROM placed")), Queue("Billing", self.database).peek(10)


def kinds(outcomes):
    return [outcome.kind for outcome in outcomes]


# ------------------------------------------------------------------ SQLAlchemy
@pytest.mark.promise("orm-commits-with-message")
def test_what_a_session_holds_when_the_handler_returns_commits_with_the_message(work):
    def handle(message, context):
        ada = context.session.get(Customer, 7)
        context.session.add(Placed(id=message.number, customer=ada))
        context.send(Charge(message.number), to="Billing")

    outcomes = work.does(handle, numbers=[1, 2, 3])

    assert [outcome.error for outcome in outcomes] == [None] * 3
    assert kinds(outcomes) == [Kind.HANDLED] * 3
    assert (work.stored, work.queue.peek(10)) == (([1, 2, 3], 3), 0)


@pytest.mark.promise("orm-commits-with-message")
def test_an_error_undoes_what_a_session_has_written_and_committed(work):
    def handle(message, context):
        context.session.add(Placed(id=message.number, customer_id=7))
        context.session.commit()
        context.send(Charge(message.number), to="Billing")
        raise ValueError("no")

    assert kinds(work.does(handle)) == [Kind.MOVED_TO_ERROR]
    assert work.stored == ([], 0)


def test_a_session_that_cannot_write_fails_the_attempt(work):
    def handle(message, context):
        context.session.add(Placed(id=message.number, customer_id=99))

    (outcome,) = work.does(handle)

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert "IntegrityError" in outcome.error
    assert work.stored == ([], 0)


@pytest.mark.promise("orm-commits-with-message")
def test_a_session_commits_and_rolls_back_savepoints(work):
    def handle(message, context):
        session = context.session
        session.add(Placed(id=1, customer_id=7))
        session.commit()
        session.add(Placed(id=2, customer_id=7))
        session.flush()
        session.rollback()
        with session.begin_nested():
            session.add(Placed(id=3, customer_id=7))
        with pytest.raises(IntegrityError), session.begin_nested():
            session.add(Placed(id=1, customer_id=7))
            session.flush()
        session.add(Placed(id=4, customer_id=7))
        assert session is context.session

    assert kinds(work.does(handle)) == [Kind.HANDLED]
    assert work.stored == ([1, 3, 4], 0)


def test_relationships_are_loaded_when_they_are_asked_for(work):
    seen = []

    def handle(message, context):
        session = context.session
        session.add_all([Placed(id=1, customer_id=7), Placed(id=2, customer_id=7)])
        session.commit()
        session.expire_all()
        seen.append([placed.id for placed in session.scalars(select(Customer)).one().orders])
        seen.append(session.get(Placed, 2).customer.name)

    assert kinds(work.does(handle)) == [Kind.HANDLED]
    assert [sorted(seen[0]), seen[1]] == [[1, 2], "Ada"]


def test_a_session_and_the_connection_share_a_transaction(work):
    def handle(message, context):
        context.connection.execute("INSERT INTO placed VALUES (1, 7)")
        context.session.execute(text("UPDATE placed SET id = id + 10"))
        assert context.session.get(Placed, 11) is not None

    assert kinds(work.does(handle)) == [Kind.HANDLED]
    assert work.stored == ([11], 0)


def test_sessions_of_a_batch_share_its_transaction_and_a_failure_undoes_all_of_it(work):
    def handle(message, context):
        context.session.add(Placed(id=message.number, customer_id=7 if message.number != 4 else 99))

    endpoint = Endpoint("Sales", recoverability=ONCE)
    endpoint.handles(Order)(handle)
    with endpoint.open(work.database) as bus:
        for number in range(1, 7):
            bus.send(Order(number), to="Sales")
    batches = Batches(endpoint.pipeline(work.database, "Sales"), batch_size(6, 1.0))
    while batches.process()[0].kind is not Kind.EMPTY:
        pass

    assert work.stored == ([1, 2, 3, 5, 6], 0)
    assert Queue("error", work.database).peek(10) == 1


def test_each_handler_has_a_session_of_its_own(work):
    sessions = []

    def one(message, context):
        context.session.add(Placed(id=1, customer_id=7))
        sessions.append(context.session)

    def other(message, context):
        assert context.session.get(Placed, 1) is not None
        sessions.append(context.session)

    assert kinds(work.does(one, other)) == [Kind.HANDLED]
    assert sessions[0] is not sessions[1]


@dataclass
class Progress:
    number: int
    backend: int = 0


class Steps(Saga[Progress], correlate={Order: "number"}):
    @starts(Order)
    def on_order(self, message, context):
        self.state.backend = context.session.scalar(text("SELECT pg_backend_pid()"))
        context.connection.execute("SELECT 1")


class AsyncSteps(Saga[Progress], correlate={Order: "number"}):
    @starts(Order)
    async def on_order(self, message, context):
        self.state.backend = await context.session.scalar(text("SELECT pg_backend_pid()"))
        await context.session.commit()


@pytest.mark.parametrize("saga", [Steps, AsyncSteps])
def test_a_saga_has_a_session(saga, recwarn):
    with SagaTest(saga) as test:
        test.handle(Order(5))

        assert test.state(5).backend > 0
    assert [str(each.message) for each in recwarn if UNTIDY.search(str(each.message))] == []


def test_a_late_use_of_a_session_is_refused(work):
    kept = []

    def handle(message, context):
        context.session.get(Customer, 7)
        kept.append(context)
        kept.append(context.session)

    assert kinds(work.does(handle)) == [Kind.HANDLED]
    with pytest.raises(HandlerEnded):
        kept[0].session  # noqa: B018
    if work.database.engine == "postgresql":
        with pytest.raises((SQLAlchemyError, HandlerEnded)):
            kept[1].execute(text("INSERT INTO placed VALUES (66, 7)"))
    assert work.stored == ([], 0)


def test_a_commit_in_plain_sql_is_refused_as_always(work):
    if work.database.engine != "postgresql":
        pytest.skip("pyodbc's connections cannot be watched: found afterwards")

    def handle(message, context):
        context.session.add(Placed(id=1, customer_id=7))
        context.session.flush()
        context.session.execute(text("COMMIT"))

    (outcome,) = work.does(handle)

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert "HandlerBrokeTransaction" in outcome.error


@pytest.fixture
def without_greenlet(monkeypatch):
    """An environment with SQLAlchemy, and without what its sessions on event loops need."""
    for name in ("greenlet", "sqlalchemy.ext.asyncio"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(mapped_session, "_engine", mapped_session._engine.__wrapped__)


def test_a_session_of_a_plain_handler_needs_sqlalchemy_alone(work, without_greenlet):
    def handle(message, context):
        context.session.add(Placed(id=message.number, customer_id=7))

    assert kinds(work.does(handle)) == [Kind.HANDLED]
    assert work.stored == ([1], 0)


def test_an_async_session_says_what_else_it_needs(on_loop, without_greenlet):
    async def handle(message, context):
        context.session  # noqa: B018

    assert "pip install 'sqlalchemy[asyncio]'" in on_loop.does(handle)[0].error


def test_without_a_transaction_there_is_no_session(work):
    def handle(message, context):
        context.session.get(Customer, 7)

    (outcome,) = work.does(handle, transaction_mode="none")

    assert "none is open here" in outcome.error


def test_a_session_within_the_commit_of_a_lease(work):
    def handle(message, context):
        with context.commit():
            context.session.add(Placed(id=message.number, customer_id=7))
            context.send(Charge(message.number), to="Billing")

    def fails(message, context):
        with context.commit():
            context.session.add(Placed(id=message.number, customer_id=99))

    def forgets(message, context):
        context.session  # noqa: B018

    def late(message, context):
        with context.commit():
            context.session.add(Placed(id=3, customer_id=7))
        with pytest.raises(SettingsError, match=r"context\.commit\(\)"):
            context.session  # noqa: B018

    assert kinds(work.does(handle, numbers=[1, 2], receive="lease")) == [Kind.HANDLED] * 2
    assert work.stored == ([1, 2], 2)
    assert "IntegrityError" in work.does(fails, receive="lease")[0].error
    assert "context.commit()" in work.does(forgets, receive="lease")[0].error
    assert work.stored == ([1, 2], 2)
    assert kinds(work.does(late, receive="lease")) == [Kind.HANDLED]
    assert work.stored == ([1, 2, 3], 2)


# ------------------------------------------------------------------ async handlers
@pytest.fixture
def on_loop(work):
    if work.database.engine != "postgresql":
        pytest.skip("SQL Server has no async driver here")
    return work


@pytest.mark.promise("orm-commits-with-message")
def test_an_async_session_commits_with_the_message(on_loop):
    names = []

    async def handle(message, context):
        session = context.session
        ada = await session.get(Customer, 7, options=[selectinload(Customer.orders)])
        session.add(Placed(id=message.number, customer=ada))
        await session.commit()
        names.append(ada.name)
        session.add(Placed(id=message.number + 10, customer_id=7))
        await session.flush()
        await session.rollback()
        async with session.begin_nested():
            session.add(Placed(id=message.number + 20, customer_id=7))
        placed = await session.get(Placed, message.number)
        names.append((await placed.awaitable_attrs.customer).name)
        session.add(Placed(id=message.number + 30, customer_id=7))
        context.send(Charge(1), to="Billing")

    assert kinds(on_loop.does(handle, numbers=[1, 2])) == [Kind.HANDLED] * 2
    assert names == ["Ada"] * 4
    assert on_loop.stored == ([1, 2, 21, 22, 31, 32], 2)


def test_an_error_undoes_what_an_async_session_has_committed(on_loop, recwarn):
    async def handle(message, context):
        context.session.add(Placed(id=message.number, customer_id=7))
        await context.session.commit()
        await asyncio.sleep(0)
        raise ValueError("no")

    async def cannot_write(message, context):
        context.session.add(Placed(id=message.number, customer_id=99))

    assert kinds(on_loop.does(handle)) == [Kind.MOVED_TO_ERROR]
    assert "IntegrityError" in on_loop.does(cannot_write)[0].error
    assert on_loop.stored == ([], 0)
    assert [str(each.message) for each in recwarn if UNTIDY.search(str(each.message))] == []


def test_async_sessions_of_a_lease_commit_in_its_block(on_loop):
    async def handle(message, context):
        async with context.commit():
            context.session.add(Placed(id=message.number, customer_id=7))
            context.send(Charge(message.number), to="Billing")

    async def fails(message, context):
        async with context.commit():
            context.session.add(Placed(id=message.number, customer_id=99))

    assert kinds(on_loop.does(handle, numbers=[1, 2], receive="lease")) == [Kind.HANDLED] * 2
    assert "IntegrityError" in on_loop.does(fails, receive="lease")[0].error
    assert on_loop.stored == ([1, 2], 2)


def test_sql_server_has_no_async_session(work):
    if work.database.engine == "postgresql":
        pytest.skip("PostgreSQL has one: the tests above")

    async def handle(message, context):
        context.session  # noqa: B018

    assert "Make the handler a plain function" in work.does(handle)[0].error


# ------------------------------------------------------------------ Django
@pytest.fixture
def shop(work):
    if work.database.engine != "postgresql":
        pytest.skip("Django has no driver for SQL Server of its own")
    Shop(work.database, work.sql, work.target).django()
    work.rows = order_rows().objects
    return work


@cache
def order_rows():
    from django.db import models

    class OrderRow(models.Model):
        id = models.IntegerField(primary_key=True)
        customer_id = models.IntegerField()

        class Meta:
            app_label = "shop"
            db_table = "placed"
            managed = False

    return OrderRow


@pytest.mark.promise("orm-commits-with-message")
def test_what_django_writes_commits_with_the_message(shop):
    from django.db import connection

    def handle(message, context):
        with context.django():
            shop.rows.create(id=message.number, customer_id=7)
            assert connection.in_atomic_block
        context.send(Charge(message.number), to="Billing")

    assert kinds(shop.does(handle, numbers=[1, 2])) == [Kind.HANDLED] * 2
    assert shop.stored == ([1, 2], 2)
    assert not connection.in_atomic_block
    assert shop.rows.count() == 2
    connection.close()


@pytest.mark.promise("orm-commits-with-message")
def test_djangos_atomic_blocks_are_savepoints(shop):
    from django.db import IntegrityError as Refused
    from django.db import transaction

    def handle(message, context):
        with context.django() as connection:
            shop.rows.create(id=1, customer_id=7)
            with pytest.raises(Refused), transaction.atomic():
                shop.rows.create(id=1, customer_id=7)
            with transaction.atomic():
                shop.rows.create(id=2, customer_id=7)
            with pytest.raises(RuntimeError, match="durable"), transaction.atomic(durable=True):
                pass
            with pytest.raises(transaction.TransactionManagementError):
                connection.commit()

    assert kinds(shop.does(handle)) == [Kind.HANDLED]
    assert shop.stored == ([1, 2], 0)


@pytest.mark.parametrize("error", ["raised", "swallowed", "on_commit", "closed", "commits"])
def test_an_error_undoes_what_django_has_written(shop, error):
    from django.db import IntegrityError as Refused
    from django.db import transaction

    def handle(message, context):
        with context.django() as connection:
            shop.rows.create(id=1, customer_id=7)
            if error == "raised":
                raise ValueError("no")
            if error == "swallowed":
                with pytest.raises(Refused), transaction.atomic(savepoint=False):
                    shop.rows.create(id=1, customer_id=7)
            elif error == "on_commit":
                transaction.on_commit(lambda: None)
            elif error == "closed":
                connection.close()
            else:
                with connection.cursor() as cursor:
                    cursor.execute("COMMIT")

    words = {
        "raised": "ValueError", "swallowed": "TransactionManagementError", "on_commit": "Send a message with context.send",
        "closed": "closes the transaction", "commits": "HandlerBrokeTransaction",
    }[error]  # fmt: skip
    (outcome,) = shop.does(handle)

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert words in outcome.error
    if error != "commits":
        assert shop.stored == ([], 0)


def test_a_block_of_django_within_another_one_is_the_same(shop):
    def place(context, number):
        with context.django():
            shop.rows.create(id=number, customer_id=7)

    def handle(message, context):
        with context.django():
            place(context, 1)
            shop.rows.create(id=2, customer_id=7)
        place(context, 3)
        if message.number:
            raise ValueError("no")

    assert kinds(shop.does(handle)) == [Kind.MOVED_TO_ERROR]
    assert shop.stored == ([], 0)
    assert kinds(shop.does(handle, numbers=[0])) == [Kind.HANDLED]
    assert shop.stored == ([1, 2, 3], 0)


def test_djangos_own_connection_is_untouched(shop):
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        before = cursor.fetchone()
    within = []

    def handle(message, context):
        with context.django(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid(), now()")
            within.append(cursor.fetchone())

    assert kinds(shop.does(handle)) == [Kind.HANDLED]
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        after = cursor.fetchone()
    connection.close()
    assert before == after
    assert within[0][0] != before[0]


def test_without_a_transaction_django_has_none(shop):
    def handle(message, context):
        with context.django():
            pass

    (outcome,) = shop.does(handle, transaction_mode="none")

    assert "none is open here" in outcome.error


def test_sqlalchemy_and_django_see_the_same_rows(shop):
    def handle(message, context):
        with context.django():
            shop.rows.create(id=1, customer_id=7)
        assert isinstance(context.session, Session)
        assert context.session.get(Placed, 1) is not None

    assert kinds(shop.does(handle)) == [Kind.HANDLED]
