"""A view that stores an order and sends a command in one transaction."""

from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_http_methods
from examples.django_shop.shop.messages import PlaceOrder
from examples.django_shop.shop.models import Order

from rowpost import Endpoint

__all__ = ["order", "place"]

web = Endpoint("Web", send_only=True)
web.route(PlaceOrder, to="Sales")


def place(order_id: int, product: str) -> None:
    with transaction.atomic():
        Order.objects.create(order_id=order_id, product=product)
        with web.open(connection) as bus:
            bus.send(PlaceOrder(order_id))


@require_http_methods(["GET", "PUT"])
def order(request: HttpRequest, order_id: int) -> HttpResponse:
    if request.method == "PUT":
        if Order.objects.filter(pk=order_id).exists():
            return JsonResponse({"error": "There is such an order already."}, status=409)
        place(order_id, request.GET["product"])
        return JsonResponse({"state": "placed"}, status=202)
    found = get_object_or_404(Order, pk=order_id)
    return JsonResponse({"product": found.product, "state": found.state})
