"""An application with SQLAlchemy or Django, whose transactions endpoints join."""

import django
import psycopg
import sqlalchemy
from django.conf import settings as django_settings
from django.db import connections
from psycopg.conninfo import conninfo_to_dict

from rowpost.database.dialects.sqlserver.odbc import find_driver, load_pyodbc
from rowpost.endpoint.endpoint import Endpoint
from rowpost.transport.queue import Queue

__all__ = ["Shop", "configure_django"]


class Shop:
    def __init__(self, database, sql, target):
        self.database, self.sql, self.target = database, sql, target
        self.engine = target.settings.engine
        self.web = Endpoint("Web", send_only=True)

    @property
    def stored(self):
        """Business rows, and messages."""
        return self.sql.value("SELECT COUNT(*) FROM business"), Queue("Billing", self.database).peek(10)

    def connect(self, **options):
        if self.engine == "postgresql":
            return psycopg.connect(self.target.url, **options)
        return load_pyodbc().connect(f"Driver={{{find_driver()}}};{self.target.url}", **options)

    def sqlalchemy(self, **options):
        url = "postgresql+psycopg://" if self.engine == "postgresql" else "mssql+pyodbc://"
        return sqlalchemy.create_engine(url, creator=self.connect, **options)

    def django(self):
        """Return Django's connection to the database."""
        return configure_django(self.target.url)


def configure_django(url):
    """Let Django have this database, and return its connection."""
    if not django_settings.configured:
        django_settings.configure(DATABASES={})
        django.setup()
    known = conninfo_to_dict(url)
    options = {
        "NAME": known["dbname"],
        "USER": known.get("user", ""),
        "HOST": known.get("host", ""),
        "PORT": known.get("port", ""),
    }
    connections.settings["default"] = connections.configure_settings(
        {"default": {"ENGINE": "django.db.backends.postgresql", **options}}
    )["default"]
    if hasattr(connections._connections, "default"):
        del connections["default"]
    return connections["default"]
