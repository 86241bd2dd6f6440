"""The tables of the application that check_django.py migrates."""

import uuid

from django.db import models


class Shop(models.Model):
    name = models.CharField(max_length=50, unique=True)
    opened = models.DateField(null=True)


class Sale(models.Model):
    shop = models.ForeignKey(Shop, on_delete=models.CASCADE, related_name="sales")
    product = models.CharField(max_length=100, db_index=True)
    price = models.DecimalField(max_digits=10, decimal_places=2, null=True)
    amount = models.PositiveIntegerField(default=1)
    at = models.DateTimeField(null=True)
    note = models.TextField(blank=True, default="")

    class Meta:
        indexes = [models.Index(fields=["shop", "at"], name="sale_shop_at")]


class Voucher(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    terms = models.JSONField(null=True)
    shops = models.ManyToManyField(Shop)
