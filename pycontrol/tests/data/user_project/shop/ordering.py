"""Takes orders with SQLAlchemy, and sends what is to be done for them."""

from collections.abc import Callable

from rowpost import Context, Endpoint, Sending
from shop.messages import ChargeCard, PlaceOrder, SendMail
from shop.tables import Placed

ordering = Endpoint("Ordering")


@ordering.around_sends
def stamped(message: object, sending: Sending, proceed: Callable[[], None]) -> None:
    sending.headers["Shop.Tenant"] = "north"
    proceed()


@ordering.handles(PlaceOrder)
def place(message: PlaceOrder, context: Context) -> None:
    if context.session.get(Placed, message.order_id) is not None:
        context.discard("the order is there already")
        return
    context.session.add(Placed(order_id=message.order_id, card=message.card))
    context.send(ChargeCard(message.order_id, message.card), to="Charging")
    context.send(SendMail(message.order_id, message.address), to="Mailing")
