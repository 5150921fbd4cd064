"""Open the database connections of Spark's planner and worker processes.

Each process loads the environment by its name, so that no URL passes through Spark.
"""

from __future__ import annotations

from rowpost.database import embedded
from rowpost.database.connection import Connection, connect, connect_url
from rowpost.errors import SettingsError
from rowpost.settings.environment import Settings, load_settings

__all__ = ["APPLICATION", "NOT_POSTGRESQL", "log_url", "open_database"]

APPLICATION = "rowpost spark"
NOT_POSTGRESQL = (
    "mode=log reads the log of PostgreSQL, and this environment's server is a SQL Server. Use mode=tail, or mode=drain for a queue without consumers."
)


def open_database(environment: str | None, settings: Settings | None = None) -> Connection:
    """Connect to the database of an environment.

    A running embedded server is used as it is: a server that this process starts would stop with it.

    Raises:
        SettingsError: the environment does not exist, or a variable that it names is not set in this process.
        DatabaseUnavailable: the server cannot be reached.
        LoginRefused: the server rejected the login.
    """
    settings = settings or load_settings(environment)
    if settings.embedded:
        url = embedded.running(settings.data_folder)
        if url is not None:
            return connect_url(settings.engine, url, APPLICATION)
    return connect(settings, APPLICATION)


def log_url(environment: str | None) -> str:
    """Return the URL at which the server's log can be read. It contains the password: keep it in this process.

    Raises:
        SettingsError: the environment does not exist, or its server is a SQL Server.
    """
    settings = load_settings(environment)
    if settings.engine != "postgresql":
        raise SettingsError(NOT_POSTGRESQL)
    return settings.url or embedded.running(settings.data_folder) or embedded.start(settings.data_folder)
