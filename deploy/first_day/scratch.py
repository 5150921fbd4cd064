"""The scratch database of a run, the login that is a member of its role db_owner, and what no report may show."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from deploy.first_day.ended import NotPossible, ProvedNothing

from rowpost.database.connection import Connection, connect_url
from rowpost.deploy.runner import is_babelfish
from rowpost.errors import RowpostError

__all__ = ["NAME", "PROGRAM", "Place", "Refused", "Secrets", "drop", "parts", "query", "require_view", "scratch", "with_parts"]  # fmt: skip

NAME = "rowpost_first_day_scratch"
PROGRAM = "rowpost first day"
DROP_SECONDS = 20
_ALLOWED = re.compile(rf"{NAME}(_[A-Za-z0-9_]{{1,60}})?")
_PART = re.compile(r"\s*([^=;{}]+?)\s*=\s*(\{(?:[^}]|\}\})*\}|[^;]*)\s*(?:;|$)")
_IDENTITY = ("uid", "pwd", "trusted_connection", "authentication")


class Refused(Exception):
    """The run cannot start; nothing was changed."""


def parts(url: str) -> dict[str, str]:
    """Return the parts of an ODBC connection string by their names in lower case, with braces kept."""
    return {name.lower(): value for name, value in _PART.findall(url)}


def with_parts(url: str, **changes: str) -> str:
    """Return a connection string with some parts replaced; a part that becomes empty is left out."""
    found = {**parts(url), **changes}
    return ";".join(f"{name}={value}" for name, value in found.items() if value)


class Secrets:
    """Passwords that must not appear in a report. Each is hidden as it is written, and as the driver reads it."""

    def __init__(self, *urls: str) -> None:
        self._values: set[str] = set()
        for url in urls:
            self.add(parts(url).get("pwd", ""))

    def add(self, value: str) -> None:
        """Hide this text from now on."""
        inner = value[1:-1].replace("}}", "}") if value.startswith("{") else value
        self._values |= {each for each in (value, inner) if each}

    def hide(self, text: str) -> str:
        """Return the text with stars in place of each secret."""
        for value in sorted(self._values, key=len, reverse=True):
            text = text.replace(value, "***")
        return text


@dataclass
class Place:
    """Where the steps run.

    Attributes:
        admin_url: the connection string of ROWPOST_FIRST_DAY_URL.
        url: that of the scratch database, as the member of db_owner; as the administrator if there can be no such member.
        name: the scratch database.
        folder: where reports of the programs go.
        quick: whether steps use a tenth of their messages and seconds.
        babelfish: whether the server is Babelfish, the test engine.
        tsqlt: arguments for the real tSQLt; empty for the shim.
        facts: what the preflight found, for the summary.
        no_member: why no login could become a member of db_owner; empty if one did.
        deployed_by: who has deployed rowpost in the scratch database.
        rcsi: "on" or "off" if the run has set READ_COMMITTED_SNAPSHOT for the step that runs now; empty: as the server has it.
    """

    admin_url: str = field(repr=False)
    url: str = field(repr=False)
    name: str
    folder: Path
    secrets: Secrets
    quick: bool = False
    babelfish: bool = False
    tsqlt: Sequence[str] = ()
    facts: dict[str, str] = field(default_factory=dict)
    no_member: str = ""
    deployed_by: str = ""
    rcsi: str = ""

    def member(self) -> Connection:
        """Open a connection to the scratch database with `url`."""
        return connect_url("sqlserver", self.url, PROGRAM)

    def admin(self) -> Connection:
        """Open a connection to the scratch database as the administrator."""
        return connect_url("sqlserver", with_parts(self.admin_url, database=self.name), PROGRAM)

    def server(self) -> Connection:
        """Open a connection as the administrator, outside of the scratch database."""
        return connect_url("sqlserver", self.admin_url, PROGRAM)

    def set_rcsi(self, setting: str) -> None:
        """Set READ_COMMITTED_SNAPSHOT of the scratch database; "" changes nothing. Raises ProvedNothing: the server keeps another."""
        self.rcsi = setting
        if setting:
            with self.server() as admin:
                option = f"READ_COMMITTED_SNAPSHOT {setting.upper()} WITH ROLLBACK IMMEDIATE"
                query(admin, f"ALTER DATABASE {self.name} SET {option};")
                found = "SELECT d.is_read_committed_snapshot_on FROM sys.databases AS d WHERE d.name = ?;"
                if bool(query(admin, found, self.name)[0][0]) != (setting == "on"):
                    raise ProvedNothing(f"the server did not set READ_COMMITTED_SNAPSHOT {setting}")

    @contextmanager
    def database(self, suffix: str) -> Iterator[tuple[str, str]]:
        """Create another database for the block. Yields its name, and its connection string as the administrator."""
        name = f"{self.name}_{suffix}"
        with self.server() as admin:
            query(admin, f"CREATE DATABASE {name};")
            try:
                yield name, with_parts(self.admin_url, database=name)
            finally:
                drop(admin, "DATABASE", name, babelfish=self.babelfish)

    @contextmanager
    def login(self, suffix: str) -> Iterator[tuple[str, str]]:
        """Create a login, and its user without rights in the scratch database. Yields its name, and its connection string.

        Raises NotPossible: no login with a password can connect, because the server has Windows authentication only.
        """
        name, password = f"{self.name}_{suffix}", f"Aa1.{secrets.token_urlsafe(24)}"
        self.secrets.add(password)
        changes = {**dict.fromkeys(_IDENTITY, ""), "uid": name, "pwd": password, "database": self.name}
        url = with_parts(self.admin_url, **changes)
        with self.admin() as inside:
            query(inside, f"CREATE LOGIN {name} WITH PASSWORD = '{password}';")
            try:
                query(inside, f"CREATE USER {name} FOR LOGIN {name};")
                try:
                    connect_url("sqlserver", url, PROGRAM).close()
                except RowpostError as error:
                    raise NotPossible(f"a login with a password cannot connect: {error}") from error
                yield name, url
            finally:
                if not self.babelfish:  # Babelfish drops no user that has rights; the user is dropped with the database
                    drop(inside, "USER", name)
                drop(inside, "LOGIN", name)

    def scaled(self, number: int) -> int:
        """Return a number of messages, or a tenth of it in a quick run."""
        return max(1, number // 10) if self.quick else number


def query(database: Connection, statement: str, *values: Any) -> list[tuple]:
    """Run one statement with `?` for each value, and return its rows. Raises RowpostError."""
    with database.translated():
        cursor = database.driver_connection.cursor()
        try:
            cursor.execute(statement, *values)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        finally:
            cursor.close()


def require_view(database: Connection, *views: str) -> None:
    """Raise NotPossible unless this login can read the server's views."""
    for view in views:
        try:
            query(database, f"SELECT TOP (1) 1 FROM {view};")
        except RowpostError as error:
            said = str(error.__cause__).rpartition("]")[2]  # rowpost's own text would suggest a deployment
            raise NotPossible(
                f"{view} cannot be read; it needs VIEW SERVER STATE, from 2022 on VIEW SERVER PERFORMANCE STATE. The server: {said}"
            ) from error


@contextmanager
def scratch(
    url: str,
    folder: Path,
    name: str = NAME,
    *,
    keep: bool = False,
    quick: bool = False,
    tsqlt: Sequence[str] = (),
) -> Iterator[Place]:
    """Create the database and the login for the block, and drop both at its end unless `keep`.

    Args:
        url: a login that may create databases and logins.
        folder: where the reports go.
        name: the database; the login has the same name.
        keep: leave the database and the login.
        quick: a short run.
        tsqlt: arguments of deploy/tsqlt/run.py.

    Raises:
        Refused: the name is not one of a scratch database, it is taken, or the server refused. Nothing was changed.
    """
    if not _ALLOWED.fullmatch(name):
        raise Refused(f"The database must be called {NAME}, or {NAME}_ with letters and digits after it (got {name}).")
    password = f"Aa1.{secrets.token_urlsafe(24)}"
    hidden = Secrets(url)
    hidden.add(password)
    member = with_parts(url, **{**dict.fromkeys(_IDENTITY, ""), "uid": name, "pwd": password, "database": name})
    try:
        admin = connect_url("sqlserver", url, PROGRAM)
    except RowpostError as error:
        raise Refused(hidden.hide(f"The server cannot be reached: {error}")) from error
    with admin:
        place = Place(url, member, name, folder, hidden, quick, is_babelfish(admin), tsqlt)
        if place.babelfish:
            import_module("tests.support.babelfish").install()
        if query(admin, "SELECT DB_ID(?), SUSER_ID(?);", name, name) != [(None, None)]:
            raise Refused(
                f"A database or login {name} exists. Nothing was changed. Drop it, or name another one: --database {NAME}_2"
            )
        made: list[str] = []
        before = _databases(admin)
        try:
            try:
                _create(admin, place, password, made)
            except RowpostError as error:
                raise Refused(hidden.hide(f"The scratch database and its login cannot be created: {error}")) from error
            yield place
        finally:
            if not keep:
                _drop(admin, place, made)
            left = sorted(_databases(admin) - before - {name})
            if left:
                print(f"These databases are left over, drop them by hand: {', '.join(left)}")


def _databases(admin: Connection) -> set[str]:
    """Return the databases that the programs of a run make."""
    names = query(admin, "SELECT d.name FROM sys.databases AS d WHERE d.name LIKE N'rowpost[_]%';")
    return {str(name) for (name,) in names}


def _create(admin: Connection, place: Place, password: str, made: list[str]) -> None:
    name = place.name
    query(admin, f"CREATE DATABASE {name};")
    made.append("DATABASE")
    query(admin, f"CREATE LOGIN {name} WITH PASSWORD = '{password}';")
    made.append("LOGIN")
    with place.admin() as inside:
        query(inside, f"CREATE USER {name} FOR LOGIN {name};")
        try:
            query(inside, f"ALTER ROLE db_owner ADD MEMBER {name};")
            place.member().close()
        except RowpostError as error:  # the other steps can be run without it
            place.url, place.no_member = with_parts(place.admin_url, database=name), str(error)


def _drop(admin: Connection, place: Place, made: list[str]) -> None:
    """Drop what this run made."""
    for kind in made:
        drop(admin, kind, place.name, babelfish=place.babelfish)


def drop(admin: Connection, kind: str, name: str, *, babelfish: bool = False) -> None:
    """Drop a DATABASE, LOGIN or USER, if there is one; wait for sessions that are closing still; print what is left over."""
    found = {"DATABASE": "DB_ID", "LOGIN": "SUSER_ID", "USER": "USER_ID"}[kind]
    deadline, said = time.monotonic() + DROP_SECONDS, ""
    if kind == "DATABASE" and not babelfish:
        with suppress(RowpostError):  # DROP says what is wrong
            query(admin, f"ALTER DATABASE {name} SET SINGLE_USER WITH ROLLBACK IMMEDIATE;")
    while query(admin, f"SELECT {found}(?);", name) != [(None,)]:
        if time.monotonic() > deadline:
            print(f"The {kind.lower()} {name} is left over: {said}")
            return
        try:
            query(admin, f"DROP {kind} {name};")
        except RowpostError as error:
            said = str(error)
            time.sleep(0.2)
