"""What `rowpost run` imports: Django is set up before the models are, because no manage.py does it in a worker.

rowpost --env examples/django_shop/django_shop.yml run
"""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_shop.settings")
django.setup()

from examples.django_shop.shop.handlers import sales  # noqa: E402

__all__ = ["sales"]
