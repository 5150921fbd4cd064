"""The handlers of the image."""

from dataclasses import dataclass

from rowpost import Context, Endpoint, message_type

__all__ = ["PlaceOrder", "sales"]


@message_type("Shop.PlaceOrder", kind="command")
@dataclass(frozen=True)
class PlaceOrder:
    order_id: int


sales = Endpoint("Sales", limit=4)


@sales.handles(PlaceOrder)
def place(message: PlaceOrder, context: Context) -> None:
    context.connection.execute("INSERT INTO placed (order_id) VALUES (%s)", (message.order_id,))
