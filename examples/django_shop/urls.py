"""The paths of the project."""

from django.urls import path
from examples.django_shop.shop import views

urlpatterns = [path("orders/<int:order_id>", views.order)]
