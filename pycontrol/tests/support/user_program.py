"""A program as a user writes it, for type checkers: it is checked by test_public_names.py, and never run."""

from dataclasses import dataclass
from datetime import timedelta

from rowpost import (
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
