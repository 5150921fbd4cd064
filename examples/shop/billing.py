"""Billing: charges cards. A payment with a blocked card fails, is retried, and then moves to the error queue."""

from datetime import timedelta

from examples.shop.messages import OrderBilled, OrderPlaced

from rowpost import Context, Endpoint, Recoverability

__all__ = ["PaymentRefused", "billing"]


class PaymentRefused(Exception):
    """The bank refuses the card."""


billing = Endpoint(
    "Shop.Billing",
    error_queue="Shop.error",
    audit_queue="Shop.audit",
    limit=2,
    recoverability=Recoverability(immediate_retries=1, delayed_retries=1, delay_increase=timedelta(seconds=1)),
)


@billing.handles("Shop.Messages.OrderPlaced", OrderPlaced, subscribe=True)
def charge_card(placed: OrderPlaced, context: Context) -> None:
    """Charge a card. Also handles VipOrderPlaced, which derives from OrderPlaced."""
    blocked = context.connection.execute("SELECT 1 FROM shop.blocked_cards WHERE card = %s", (placed.card,)).fetchone()
    if blocked:
        raise PaymentRefused(f"order {placed.order_id}: the card {placed.card} is blocked")
    context.connection.execute(
        "INSERT INTO shop.payments (order_id, amount) VALUES (%s, %s)", (placed.order_id, placed.amount)
    )
    context.publish(OrderBilled(placed.order_id))
