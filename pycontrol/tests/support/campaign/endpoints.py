"""The endpoints of the sites, one for each mode. Each handler writes the order's number and sends it to Billing."""

import asyncio
import os
import random
from datetime import timedelta

import psycopg
from sqlalchemy import Integer
from sqlalchemy.orm import DeclarativeBase, mapped_column

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import MessageNotDeserialized, NoHandler
from rowpost.recoverability.policy import Decision, Failure, Recoverability
from tests.support.crashing import TYPE, Order, write

__all__ = [
    "MODES",
    "SHOP_URL",
    "is_hopeless",
    "joined",
    "lease",
    "none",
    "orm",
    "orm_lease",
    "orm_tasks",
    "outbox",
    "receive_only",
    "sends_atomic_with_receive",
    "tasks",
    "threads",
    "transaction_scope",
]

#: the URL of the other database: the participant of transaction_scope
SHOP_URL = "CAMPAIGN_SHOP_URL"
#: the transaction modes, an outbox, leases, processes with several messages in the mode sends_atomic_with_receive,
#: SQLAlchemy's sessions: plain, async, and async with leases; and orders that applications send in transactions of their own
MODES = (
    "none",
    "receive_only",
    "sends_atomic_with_receive",
    "transaction_scope",
    "outbox",
    "lease",
    "tasks",
    "threads",
    "orm",
    "orm_tasks",
    "orm_lease",
    "joined",
)
SLOTS = 3
PASSING_SHARE = 0.05


class Passing(Exception):
    """Goes away when the message is tried again."""


class Hopeless(Exception):
    """Never goes away."""


def is_hopeless(number: int) -> bool:
    """Return whether the handler of this order fails always."""
    return number % 50 == 7


def decide(failure: Failure) -> Decision | timedelta:
    if isinstance(
        failure.error, (Hopeless, MessageNotDeserialized, NoHandler, psycopg.DataError)
    ):  # such as a number that no column takes
        return Decision.ERROR
    return timedelta(milliseconds=100) if failure.attempts % 3 == 0 else Decision.RETRY


def _fail_now_and_then(number: int) -> None:
    if is_hopeless(number):
        raise Hopeless(f"order {number}")
    if random.random() < PASSING_SHARE:
        raise Passing(f"order {number}")


def endpoint_of(mode: str, **options) -> Endpoint:
    with_outbox, leased = mode == "outbox", mode == "lease"
    endpoint = Endpoint(
        "Sales",
        transaction_mode={"outbox": "receive_only", "lease": "sends_atomic_with_receive"}.get(mode, mode),
        receive="lease" if leased else "transaction",
        lease_time=timedelta(seconds=1) if leased else None,
        outbox="shop" if with_outbox else None,
        participants={"shop": os.environ.get(SHOP_URL, "")} if mode == "transaction_scope" else {},
        recoverability=Recoverability(policy=decide),
        **options,
    )

    @endpoint.handles(TYPE, Order)
    def handle(order, context):
        if leased:
            with context.commit() as connection:
                work(order, context, connection)
        else:
            work(order, context, context.connection)

    def work(order, context, connection):
        write(connection, order.number)
        for name in endpoint.participants:
            write(context.enlist(name), order.number)
        context.send(Order(order.number), to="Billing", headers={"NServiceBus.EnclosedMessageTypes": TYPE})
        if mode != "none":  # which does not undo what a handler wrote
            _fail_now_and_then(order.number)

    return endpoint


def endpoint_of_tasks() -> Endpoint:
    endpoint = Endpoint("Sales", recoverability=Recoverability(policy=decide), concurrency=SLOTS)

    @endpoint.handles(TYPE, Order)
    async def handle(order, context):
        await context.connection.execute("INSERT INTO business (number) VALUES (%s)", (order.number,))
        await asyncio.sleep(0.001)
        context.send(Order(order.number), to="Billing", headers={"NServiceBus.EnclosedMessageTypes": TYPE})
        _fail_now_and_then(order.number)

    return endpoint


class _Base(DeclarativeBase):
    pass


class Business(_Base):
    """A row of the table that handlers write, as SQLAlchemy sees it: its key is of use to SQLAlchemy only."""

    __tablename__ = "business"
    number = mapped_column(Integer, primary_key=True, autoincrement=False)


def endpoint_of_orm(**options) -> Endpoint:
    endpoint = Endpoint("Sales", recoverability=Recoverability(policy=decide), **options)

    @endpoint.handles(TYPE, Order)
    def handle(order, context):
        context.session.add(Business(number=order.number))
        context.session.flush()
        context.send(Order(order.number), to="Billing", headers={"NServiceBus.EnclosedMessageTypes": TYPE})
        _fail_now_and_then(order.number)
        context.session.commit()

    return endpoint


def endpoint_of_async_orm(**options) -> Endpoint:
    endpoint = Endpoint("Sales", recoverability=Recoverability(policy=decide), **options)
    leased = endpoint.leases

    @endpoint.handles(TYPE, Order)
    async def handle(order, context):
        if leased:
            async with context.commit():
                await work(order, context)
        else:
            await work(order, context)

    async def work(order, context):
        context.session.add(Business(number=order.number))
        await context.session.flush()
        await asyncio.sleep(0.001)
        context.send(Order(order.number), to="Billing", headers={"NServiceBus.EnclosedMessageTypes": TYPE})
        _fail_now_and_then(order.number)

    return endpoint


none = endpoint_of("none")
receive_only = endpoint_of("receive_only")
sends_atomic_with_receive = endpoint_of("sends_atomic_with_receive")
transaction_scope = endpoint_of("transaction_scope")
outbox = endpoint_of("outbox")
tasks = endpoint_of_tasks()
threads = endpoint_of("sends_atomic_with_receive", concurrency=SLOTS)
lease = endpoint_of("lease")
orm = endpoint_of_orm()
orm_tasks = endpoint_of_async_orm(concurrency=SLOTS)
orm_lease = endpoint_of_async_orm(receive="lease", lease_time=timedelta(seconds=1))
joined = endpoint_of_orm()
