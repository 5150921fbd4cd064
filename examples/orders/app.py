"""The web application: each request stores an order and sends a command in one transaction.

uvicorn examples.orders.app:api
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated

from examples.orders.messages import Accept
from examples.orders.tables import Invoice, Order, sqlalchemy_url
from fastapi import Depends, FastAPI, HTTPException, Request
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from rowpost import Endpoint

__all__ = ["api"]

web = Endpoint("Web", send_only=True)
web.route(Accept, to="Orders")


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    url = sqlalchemy_url()
    api.state.engine, api.state.async_engine = create_engine(url), create_async_engine(url)
    yield
    await api.state.async_engine.dispose()
    api.state.engine.dispose()


api = FastAPI(lifespan=lifespan)


def open_session(request: Request) -> Iterator[Session]:
    with Session(request.app.state.engine) as session:
        yield session


@api.put("/orders/{order_id}", status_code=202)
def place(order_id: int, product: str, session: Annotated[Session, Depends(open_session)]) -> dict[str, str]:
    if session.get(Order, order_id) is not None:
        raise HTTPException(409, "There is such an order already.")
    session.add(Order(id=order_id, product=product))
    with web.open(session) as bus:
        bus.send(Accept(order_id))
    session.commit()  # the row and the message, or neither
    return {"state": "placed"}


@api.put("/async/orders/{order_id}", status_code=202)
async def place_on_loop(order_id: int, product: str) -> dict[str, str]:
    async with AsyncSession(api.state.async_engine) as session, session.begin():
        if await session.get(Order, order_id) is not None:
            raise HTTPException(409, "There is such an order already.")
        session.add(Order(id=order_id, product=product))
        async with web.open(session) as bus:
            bus.send(Accept(order_id))  # a plain call: it is stored when the block ends
    return {"state": "placed"}


@api.get("/orders/{order_id}")
async def show(order_id: int) -> dict[str, str | None]:
    async with AsyncSession(api.state.async_engine) as session:
        order, invoice = await session.get(Order, order_id), await session.get(Invoice, order_id)
        if order is None:
            raise HTTPException(404, "There is no such order.")
        return {"product": order.product, "state": order.state, "invoice": invoice.text if invoice else None}
