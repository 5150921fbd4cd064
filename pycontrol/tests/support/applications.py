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

__all__ = ["Application", "Shop", "configure_django"]


class Application:
    """An application that writes numbers into a table of its own, and sends by the endpoint `web`."""

    def __init__(self, engine, url, table="business"):
        self.engine, self.url, self._table = engine, url, table
        self.web = Endpoint("Web", send_only=True)

    def row(self, number):
        """Return the statement that writes a number."""
        return f"INSERT INTO {self._table} (number) VALUES ({number})"

    def connect(self, **options):
        if self.engine == "postgresql":
            return psycopg.connect(self.url, **options)
        return load_pyodbc().connect(f"Driver={{{find_driver()}}};{self.url}", **options)

    def sqlalchemy(self, **options):
        url = "postgresql+psycopg://" if self.engine == "postgresql" else "mssql+pyodbc://"
        return sqlalchemy.create_engine(url, creator=self.connect, **options)

    def django(self):
        """Return Django's connection to the database."""
        return configure_django(self.url)


class Shop(Application):
    """The application on an engine under test, seen from beside."""

    def __init__(self, database, sql, target):
        super().__init__(target.settings.engine, target.url)
        self.database, self.sql = database, sql

    @property
    def stored(self):
        """Business rows, and messages."""
        return self.sql.value("SELECT COUNT(*) FROM business"), Queue("Billing", self.database).peek(10)


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
