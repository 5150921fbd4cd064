"""Sales: takes orders."""

from examples.shop.messages import OrderAccepted, OrderPlaced, PlaceOrder, VipOrderPlaced

from rowpost import Context, Endpoint

__all__ = ["sales"]

VIP_AMOUNT = 100_000

sales = Endpoint("Shop.Sales", error_queue="Shop.error", audit_queue="Shop.audit", limit=2)


@sales.handles("Shop.Messages.PlaceOrder", PlaceOrder)
def place_order(order: PlaceOrder, context: Context) -> None:
    """Store an order, publish an event and reply. All three commit together."""
    row = context.connection.execute(
        "INSERT INTO shop.orders (customer, card, amount) VALUES (%s, %s, %s) RETURNING order_id",
        (order.customer, order.card, order.amount),
    ).fetchone()
    event = VipOrderPlaced if order.amount >= VIP_AMOUNT else OrderPlaced
    context.publish(event(row[0], order.card, order.amount))
    context.reply(OrderAccepted(row[0]))
