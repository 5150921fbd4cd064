"""The web application, and the endpoint that handles what it sends. One module, so that the example is short.

uvicorn examples.orders.app:api            answers requests
rowpost --env examples/orders/orders.yml run
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, HTTPException
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from rowpost import AsyncContext, Endpoint, database_url, load_settings, message_type

SETTINGS = load_settings(Path(__file__).with_name("orders.yml"))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "web_order"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    product: Mapped[str]
    state: Mapped[str] = mapped_column(default="placed")


@message_type("Orders.Accept", kind="command")
@dataclass(frozen=True)
class Accept:
    order_id: int


# ---------------------------------------------------------------------- the web application
web = Endpoint("Web", send_only=True)
web.route(Accept, to="Orders")


def make_engine() -> AsyncEngine:
    """Return SQLAlchemy's engine for the environment's database."""
    return create_async_engine(database_url(SETTINGS).replace("postgresql:", "postgresql+psycopg:", 1))


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    api.state.engine = make_engine()
    async with api.state.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await api.state.engine.dispose()


api = FastAPI(lifespan=lifespan)


@api.put("/orders/{order_id}", status_code=202)
async def place(order_id: int, product: str) -> dict[str, str]:
    """Store the order, and send a command: one transaction."""
    async with AsyncSession(api.state.engine) as session, session.begin():
        if await session.get(Order, order_id) is not None:
            raise HTTPException(409, "There is such an order already.")
        session.add(Order(id=order_id, product=product))
        async with web.open(session) as bus:
            bus.send(Accept(order_id))
    return {"state": "placed"}


@api.get("/orders/{order_id}")
async def show(order_id: int) -> dict[str, str]:
    async with AsyncSession(api.state.engine) as session:
        order = await session.get(Order, order_id)
        if order is None:
            raise HTTPException(404, "There is no such order.")
        return {"product": order.product, "state": order.state}


# ---------------------------------------------------------------------- the worker
orders = Endpoint("Orders", concurrency=10)


@orders.handles(Accept)
async def accept(message: Accept, context: AsyncContext) -> None:
    """Change the order. It commits with the message's removal."""
    order = await context.session.get(Order, message.order_id)
    order.state = "accepted"
