"""Django's settings. The database is that of rowpost's environment, so that both share a transaction."""

from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from rowpost import database_url, load_settings

_URL = conninfo_to_dict(database_url(load_settings(Path(__file__).with_name("django_shop.yml"))))

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _URL["dbname"],
        "USER": _URL.get("user", ""),
        "PASSWORD": _URL.get("password", ""),
        "HOST": _URL.get("host", ""),
        "PORT": _URL.get("port", ""),
    }
}
INSTALLED_APPS = ["examples.django_shop.shop"]
ROOT_URLCONF = "examples.django_shop.urls"
SECRET_KEY = "only an example"
DEBUG = True
USE_TZ = True
