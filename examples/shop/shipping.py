"""Shipping: packs paid orders and ships them after a delay."""

from datetime import timedelta

from examples.shop.messages import OrderBilled, ShipOrder

from rowpost import Context, Endpoint

__all__ = ["shipping"]

PACKING_TIME = timedelta(seconds=2)

shipping = Endpoint("Shop.Shipping", error_queue="Shop.error", audit_queue="Shop.audit", limit=1)
shipping.route(ShipOrder, "Shop.Shipping")


@shipping.handles("Shop.Messages.OrderBilled", OrderBilled, subscribe=True)
def pack(billed: OrderBilled, context: Context) -> None:
    """Send a delayed message. It survives restarts, and no worker waits for it."""
    context.connection.execute("INSERT INTO shop.shipments (order_id) VALUES (%s)", (billed.order_id,))
    context.send(ShipOrder(billed.order_id), delay=PACKING_TIME)


@shipping.handles("Shop.Messages.ShipOrder", ShipOrder)
def ship(order: ShipOrder, context: Context) -> None:
    """Ship the order."""
    context.connection.execute("UPDATE shop.shipments SET shipped_at = now() WHERE order_id = %s", (order.order_id,))
