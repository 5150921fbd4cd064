"""Open the database connections of an archiver, and of Spark's planner and worker processes.

Each process loads the environment by its name, so that no URL passes through Spark.
"""

from __future__ import annotations

from rowpost.database import embedded
from rowpost.database.connection import Connection, connect, connect_url
from rowpost.settings.environment import Settings, load_settings

__all__ = ["open_database"]


def open_database(environment: str | None, application: str, settings: Settings | None = None) -> Connection:
    """Connect to the database of an environment.

    `application` is the name under which the server lists the connection. A running embedded server is used as it is: a server that this process starts would stop with it.

    Raises:
        SettingsError: the environment does not exist, or a variable that it names is not set in this process.
        DatabaseUnavailable: the server cannot be reached.
        LoginRefused: the server rejected the login.
    """
    settings = settings or load_settings(environment)
    if settings.embedded:
        url = embedded.running(settings.data_folder)
        if url is not None:
            return connect_url(settings.engine, url, application)
    return connect(settings, application)
