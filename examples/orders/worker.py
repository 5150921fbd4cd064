"""The handlers: `async def`, a plain function, and one that takes long. Each works with SQLAlchemy in the message's transaction.

rowpost --env examples/orders/orders.yml run
"""

from examples.orders.messages import Accept, Bill, Print
from examples.orders.tables import Invoice, Order

from rowpost import AsyncContext, Context, Endpoint

__all__ = ["invoices", "orders", "prints"]

orders = Endpoint("Orders", concurrency=10)


@orders.handles(Accept)
async def accept(message: Accept, context: AsyncContext) -> None:
    order = await context.session.get(Order, message.order_id)
    order.state = "accepted"
    context.send(Bill(message.order_id), to="Invoices")


invoices = Endpoint("Invoices")


@invoices.handles(Bill)
def bill(message: Bill, context: Context) -> None:
    if context.session.get(Invoice, message.order_id) is None:
        context.session.add(Invoice(order_id=message.order_id))
    context.send(Print(message.order_id), to="Prints")


prints = Endpoint("Prints", receive="lease")


@prints.handles(Print)
async def print_invoice(message: Print, context: AsyncContext) -> None:
    text = await render(message.order_id)  # as long as it takes: no transaction is open
    async with context.commit():
        invoice = await context.session.get(Invoice, message.order_id)
        invoice.text = text


async def render(order_id: int) -> str:
    """Return the text of an invoice. A real one may take an hour."""
    return f"Invoice for order {order_id}"
