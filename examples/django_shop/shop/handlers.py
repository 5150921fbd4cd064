"""The endpoint, whose handler works with Django's models in the message's transaction. worker.py runs it."""

from django.db import transaction
from examples.django_shop.shop.messages import PlaceOrder
from examples.django_shop.shop.models import Order

from rowpost import Context, Endpoint

__all__ = ["sales"]

sales = Endpoint("Sales")


@sales.handles(PlaceOrder)
def accept(message: PlaceOrder, context: Context) -> None:
    with context.django():  # or context.django("replica")
        with transaction.atomic():  # a savepoint
            order = Order.objects.select_for_update().get(pk=message.order_id)
        order.state = "accepted"
        order.save()
