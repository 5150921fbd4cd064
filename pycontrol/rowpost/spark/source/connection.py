"""Connections of Spark's own processes: planners and workers that come and go, each with the settings by their name."""

from __future__ import annotations

from rowpost.database import embedded
from rowpost.database.connection import Connection, connect, connect_url
from rowpost.settings.environment import Settings, load_settings

__all__ = ["open_database"]

APPLICATION = "rowpost spark"


def open_database(environment: str | None, settings: Settings | None = None) -> Connection:
    """Connects as the environment says. An embedded server that runs is used; starting it makes it this process's own.

    Raises:
        SettingsError: there is no such environment, or a variable that it names is not set here.
        DatabaseUnavailable, LoginRefused: what the server said.
    """
    settings = settings or load_settings(environment)
    if settings.embedded:
        url = embedded.running(settings.data_folder)
        if url is not None:
            return connect_url(settings.engine, url, APPLICATION)
    return connect(settings, APPLICATION)
