"""Provide a database on SQL Server for a measurement, as `server.py` does on the embedded PostgreSQL.

The server is the one of `ROWPOST_TEST_SQLSERVER`, an ODBC connection string whose login may create databases. On Babelfish, the
scripts are adapted as in the tests, which needs `PYTHONPATH=pycontrol`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from benchmarks.suite.server import BODY, HEADERS
from rowpost.database.connection import Connection, connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.deploy.runner import is_babelfish
from rowpost.settings.environment import QueueSettings, Settings, SupervisorSettings
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage

__all__ = ["TsqlPlace", "new_database"]

_FILL = 5000  # messages that are stored by one call
_DROP_SECONDS = 30


class TsqlPlace:
    """A database on SQL Server with a deployment of rowpost."""

    #: the sessions of connected workers
    connected = "SELECT s.session_id FROM sys.dm_exec_sessions AS s WHERE s.program_name LIKE 'rowpost worker%'"

    def __init__(self, url: str, *queues: str) -> None:
        self.url = url
        self.settings = Settings(
            engine="sqlserver", url=url, default_schema="dbo", queues=tuple(QueueSettings(name) for name in (*queues, "error")),
            supervisor=SupervisorSettings(maintenance_every=0.0),
        )  # fmt: skip
        self.database = connect_url("sqlserver", url, "rowpost benchmark")
        self.sql = self.database.driver_connection.execute
        apply(self.database, plan(self.settings))

    def fill(self, queue: str, number: int) -> None:
        """Empty the queue, and store `number` equal messages.

        Not by TRUNCATE: it begins the row versions again, and workers receive above the last one that they removed.
        """
        self.sql(f"DELETE FROM dbo.[{queue}];").close()
        messages = [OutgoingMessage(BODY, dict(HEADERS)) for _ in range(min(number, _FILL))]
        for start in range(0, number, _FILL):
            Queue(queue, self.database).send_many(messages[: number - start])


@contextmanager
def new_database(server: str, name: str, *queues: str) -> Iterator[tuple[str, str]]:
    """Create a database with rowpost and queues for the block; yield its connection string, and what the engine calls itself.

    The name gets the number of this process, and a database that exists is not touched.
    """
    name = f"{name}_{os.getpid()}"
    url = re.sub(r"(?i)database=[^;]*;?", "", server).rstrip(";") + f";Database={name}"
    with connect_url("sqlserver", server) as admin:
        if is_babelfish(admin):
            import_module("tests.support.babelfish").install()
        execute = admin.driver_connection.execute
        engine = str(execute("SELECT @@VERSION;").fetchval()).partition("\n")[0]
        execute(f"CREATE DATABASE {name};").close()
        try:
            TsqlPlace(url, *queues).database.close()
            yield url, engine
        finally:
            _drop(admin, name)


def _drop(admin: Connection, name: str) -> None:
    """Drop a database. Wait for the sessions of workers that are closing still."""
    deadline = time.monotonic() + _DROP_SECONDS
    while True:
        try:
            return admin.driver_connection.execute(f"DROP DATABASE {name};").close()
        except admin.dialect.driver_error():
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
