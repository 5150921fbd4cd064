"""A program as a user writes it, for type checkers: it is checked by test_public_names.py, and never run.

An ignored error must be one: both checkers report a comment that ignores nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_type

from rowpost import (
    AsyncBus,
    AsyncContext,
    Bus,
    Connection,
    Context,
    Endpoint,
    Message,
    NoReply,
    OutgoingMessage,
    Queue,
    Recoverability,
    RowpostError,
    Saga,
    SagaContext,
    Settings,
    connect,
    handles,
    load_settings,
    message_type,
    starts,
)


@message_type("Shop.Messages.PlaceOrder")
@dataclass(frozen=True)
class PlaceOrder:
    order_id: str
    amount: int = 0


@dataclass(frozen=True)
class OrderPaid:
    order_id: str


@dataclass
class OrderState:
    order_id: str
    paid: bool = False


sales = Endpoint("Sales", recoverability=Recoverability(immediate_retries=2))


@sales.handles("Shop.Messages.PlaceOrder", PlaceOrder)
def place(message: PlaceOrder, context: Context) -> None:
    if message.amount > 0:
        context.publish(OrderPaid(message.order_id))


@sales.handles(OrderPaid, subscribe=True)
async def remember(message: OrderPaid, context: AsyncContext) -> None:
    await context.connection.execute("INSERT INTO paid (order_id) VALUES (%s)", (message.order_id,))


@sales.handles_everything
def note(message: object, context: Context) -> None:
    context.discard("an example")


@sales.around
def measured(message: object, context: Context, proceed: Callable[[], None]) -> None:
    proceed()


class Bank:
    pass


@sales.provides(Bank)
def bank() -> Iterator[Bank]:
    yield Bank()


async def decorators_keep_the_type_of_a_function(order: PlaceOrder, context: Context, loop: AsyncContext) -> None:
    assert_type(place(order, context), None)
    assert_type(await remember(OrderPaid("1"), loop), None)
    assert_type(note(order, context), None)
    assert_type(measured(order, context, lambda: None), None)
    assert_type(bank(), Iterator[Bank])
    place("no order", context)  # type: ignore[arg-type]
    place(order)  # type: ignore[call-arg]
    await remember(order, loop)  # type: ignore[arg-type]
    note(message=order, context=1)  # type: ignore[arg-type]


async def a_bus_has_the_type_of_its_block(connection: object) -> None:
    with sales.open(connection) as bus:
        assert_type(bus, Bus)
        assert_type(bus.send(PlaceOrder("1"), to="Sales"), str)
    async with sales.open(connection) as on_loop:
        assert_type(on_loop, AsyncBus)


class OrderSaga(Saga[OrderState], correlate={PlaceOrder: "order_id", OrderPaid: "order_id"}):
    @starts(PlaceOrder)
    def begin(self, message: PlaceOrder, context: SagaContext) -> None:
        self.state.paid = False

    @handles(OrderPaid)
    def paid(self, message: OrderPaid, context: SagaContext) -> None:
        self.state.paid = True
        self.complete()


def receive(database: Connection) -> list[str]:
    queue = Queue("Sales", database)
    queue.send(b"{}", {"Shop.Note": "hello"}, time_to_be_received=timedelta(minutes=1))
    queue.send_many([OutgoingMessage(b"{}"), OutgoingMessage(b"[]")])
    received: list[Message] = queue.receive(10)
    return [message.message_id for message in received]


def main() -> int:
    settings: Settings = load_settings("local")
    try:
        with connect(settings) as database:
            return len(receive(database))
    except NoReply:
        return 0
    except RowpostError as error:
        raise SystemExit(str(error)) from error
