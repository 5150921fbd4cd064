"""Logins without rights, created for a test and dropped after it, on both engines."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from rowpost.database.connection import Connection, connect_url
from tests.support.probe import Probe

__all__ = ["Logins", "logins", "with_login"]

PASSWORD = "Rights_9!test"


#: an administrator may connect with Windows authentication, and the tests' logins have passwords
_IDENTITY = re.compile(
    r"(?i)(?:^|(?<=;))\s*(?:uid|user id|pwd|password|trusted_connection|authentication)\s*=\s*(?:\{[^}]*\}|[^;]*)(?:;|$)"
)


def with_login(url: str, name: str, password: str) -> str:
    """Return an ODBC connection string with another login, whatever the first one authenticates with."""
    return f"{_IDENTITY.sub('', url).rstrip(';')};UID={name};PWD={password}"


class Logins:
    """Create logins in the probe's database, and open connections with them."""

    def __init__(self, sql: Probe, url: str) -> None:
        self._sql, self._url = sql, url
        self._engine = sql.database.engine
        self._made: list[str] = []

    def make(self, name: str) -> str:
        name = f"{name}_{os.getpid()}_{next(_numbers)}"
        if self._engine == "sqlserver":
            self._sql.run(f"CREATE LOGIN {name} WITH PASSWORD = '{PASSWORD}'")
            self._sql.run(f"CREATE USER {name} FOR LOGIN {name}")
        else:
            self._sql.run(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
        self._made.append(name)
        return name

    def url(self, name: str, url: str = "") -> str:
        """Return the database's URL, or the given one, with that login."""
        url = url or self._url
        if self._engine == "sqlserver":
            return with_login(url, name, PASSWORD)
        return re.sub("//[^@/]*@", f"//{name}:{PASSWORD}@", url)

    def open(self, name: str) -> Connection:
        return connect_url(self._engine, self.url(name))

    def drop(self) -> None:
        for name in self._made:
            if self._engine == "postgresql":
                self._sql.run(f"DROP OWNED BY {name}")
                self._sql.run(f"DROP ROLE {name}")
            else:
                if (
                    not self._sql.babelfish
                ):  # Babelfish drops no user that has rights; the user is dropped with the database
                    self._sql.run(f"DROP USER {name}")
                self._drop_login(name)

    def _drop_login(self, name: str) -> None:
        """Drop a login as soon as its sessions have ended."""
        end = time.monotonic() + 20
        while True:
            try:
                self._sql.run(f"DROP LOGIN {name}")
                return
            except self._sql.database.dialect.driver_error():
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)


_numbers = count(1)


@contextmanager
def logins(sql: Probe, url: str) -> Iterator[Logins]:
    """Yield the logins of a database, and drop them at the end of the block."""
    made = Logins(sql, url)
    try:
        yield made
    finally:
        made.drop()
