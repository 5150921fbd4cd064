"""Open the database connections of Spark's planner and worker processes.

Each process loads the environment by its name, so that no URL passes through Spark.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from rowpost.database import embedded
from rowpost.database.connection import Connection, connect, connect_url
from rowpost.settings.environment import Settings, load_settings
from rowpost.spark.source.options import ReadOptions, WriteOptions

__all__ = ["APPLICATION", "in_environment", "open_database"]

APPLICATION = "rowpost spark"
Options = TypeVar("Options", ReadOptions, WriteOptions)


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


def in_environment(options: Options) -> Options:
    """Return options whose queues have the schema that the environment means. Raises SettingsError, InvalidQueueName."""
    resolve = load_settings(options.environment, offline=True).naming.resolve
    if isinstance(options, WriteOptions):
        return replace(options, queue=options.queue and resolve(options.queue))
    if options.pattern is not None:
        return options
    queues = tuple(map(resolve, options.queues))
    return replace(options, queue=options.queue if queues else resolve(options.queue), queues=queues)
