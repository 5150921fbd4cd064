"""The only model."""

from django.db import models

__all__ = ["Order"]


class Order(models.Model):
    order_id = models.BigIntegerField(primary_key=True)
    product = models.CharField(max_length=100)
    state = models.CharField(max_length=20, default="placed")
