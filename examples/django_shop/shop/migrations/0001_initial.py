"""The table of orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("order_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("product", models.CharField(max_length=100)),
                ("state", models.CharField(default="placed", max_length=20)),
            ],
        ),
    ]
