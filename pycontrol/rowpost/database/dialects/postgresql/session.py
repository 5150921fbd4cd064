"""Open every connection of rowpost's own to PostgreSQL, with the session settings that the protocol depends on.

The defaults of a session come from the server, the database, the role and the client's environment. rowpost assumes
nothing about them: `open_connection` is the only place that connects, and it sets what `SETTINGS` lists. A connection
that the caller opened and lends keeps its settings.

The settings travel in the startup packet: they cost no round trip, and RESET ALL goes back to them. The options of the
URL or of PGOPTIONS stay, apart from these settings. A session needs a SET instead, which is repeated after each RESET
ALL, in three cases:

- A pooler refuses or ignores `options`, and its server connection may have settings of another client.
- The URL names a service: libpq reads its options, and they would be lost.
- PGTZ or PGDATESTYLE take precedence over `options`. The server reports these settings, so that the check costs
  nothing.
"""

from __future__ import annotations

import os
import re
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.conninfo import conninfo_to_dict

from rowpost.database.dialects.postgresql import libpq
from rowpost.errors import UnsupportedServer
from rowpost.settings.password import read_password

__all__ = ["SETTINGS", "by_command", "check_version", "open_connection", "reset"]

#: what the protocol depends on, apart from `client_encoding` and DateStyle
SETTINGS = {
    # the error queue moves a message that a second connection has counted
    "default_transaction_isolation": "read committed",
    "TimeZone": "UTC",  # a time that a session converts or renders is the same for everybody
    "IntervalStyle": "postgres",  # psycopg reads no other one
    "bytea_output": "hex",  # bytes that are rendered as text have one form
    "extra_float_digits": "1",  # times of the server's clock keep their microseconds
    "standard_conforming_strings": "on",  # a backslash in a literal is a backslash
    "quote_all_identifiers": "off",  # names that the server renders are compared
    "idle_session_timeout": "0",  # a worker that waits is idle, and so is a session that holds a lock or listens
}
_ENCODING = "UTF8"
#: the order of day and month is not the protocol's: this setting keeps it, and no startup packet can
_ISO_DATES = "SET DateStyle = ISO"
_ALL = "; ".join(
    [
        f"SET client_encoding = '{_ENCODING}'",
        _ISO_DATES,
        *(f"SET {name} = '{value}'" for name, value in SETTINGS.items()),
    ]
)
_OLDEST = 14
_CONNECT_TIMEOUT = 10  # seconds
# A silent network is noticed within about half a minute, whether data are under way (tcp_user_timeout) or not
# (keepalives).
_TCP = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}  # seconds; milliseconds
#: how poolers refuse `options`, and servers older than the supported ones a setting that they do not have
_REFUSES_OPTIONS = re.compile(r"startup parameter|command-line options|configuration parameter", re.IGNORECASE)
#: URLs whose sessions take no settings from the startup packet
_by_command: set[str] = set()
#: what restores the settings of a session after RESET ALL, where that is not the default
_after_reset: WeakKeyDictionary[psycopg.Connection, str] = WeakKeyDictionary()


def open_connection(url: str, application_name: str) -> psycopg.Connection:
    """Connect as all parts of rowpost do.

    Args:
        url: of the database; it may have parameters of its own.
        application_name: as the server shows it.

    Raises:
        psycopg.Error: the connection was refused, or the URL cannot be read.
        UnsupportedServer: the server is older than PostgreSQL 14.
    """
    named = conninfo_to_dict(url)
    given: dict[str, Any] = {key: value for key, value in _TCP.items() if key not in named}
    password = read_password(url)
    if password is not None:
        given["password"] = password
    given |= {"application_name": application_name, "connect_timeout": _CONNECT_TIMEOUT, "client_encoding": _ENCODING}
    connection = _connect(url, named, given)
    try:
        check_version(connection.info.server_version)  # an older one does not have all settings
        _settle(connection, url)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(url: str, named: dict[str, Any], given: dict[str, Any]) -> psycopg.Connection:
    if "service" in named or "PGSERVICE" in os.environ:
        _by_command.add(url)
    if url not in _by_command:
        try:
            return psycopg.connect(url, autocommit=True, options=_startup_options(named), **given)
        except psycopg.OperationalError as error:
            if not _REFUSES_OPTIONS.search(str(error)):
                raise
            _by_command.add(url)
    return psycopg.connect(url, autocommit=True, **given)


def _startup_options(named: dict[str, Any]) -> str:
    """Return libpq's `options` with the protocol's settings behind those of the URL's parameters or of PGOPTIONS: the
    last one counts.
    """
    theirs = named.get("options") or os.environ.get("PGOPTIONS", "")
    ours = ("-c {}={}".format(name, value.replace(" ", r"\ ")) for name, value in SETTINGS.items())
    return " ".join(filter(None, (theirs, *ours)))


def _settle(connection: psycopg.Connection, url: str) -> None:
    """Set by command what the startup packet did not."""
    if url in _by_command:
        by_command(connection, url)
        return
    reported = connection.info.parameter_status
    missing = []
    if not (reported("DateStyle") or "").startswith("ISO"):
        missing.append(_ISO_DATES)
    if reported("TimeZone") != SETTINGS["TimeZone"]:
        missing.append(f"SET TimeZone = '{SETTINGS['TimeZone']}'")
    if missing:
        _set(connection, "; ".join(missing))


def check_version(number: int) -> None:
    """Check that a server is PostgreSQL 14 or newer; `number` is the version as libpq has it, such as 130012.

    Raises:
        UnsupportedServer: it is older.
    """
    if number < _OLDEST * 10_000:
        raise UnsupportedServer(
            f"The server is PostgreSQL {number // 10_000}.{number % 10_000}; rowpost needs PostgreSQL {_OLDEST} or "
            "newer. Nothing was changed: upgrade the server, or name another one in the environment's url."
        )


def by_command(connection: psycopg.Connection, url: str) -> None:
    """Set the settings by a command, here and on all later connections of the URL: a pooler answers, and may ignore the
    startup packet.
    """
    _by_command.add(url)
    _set(connection, _ALL)


def _set(connection: psycopg.Connection, command: str) -> None:
    libpq.command(connection, command.encode())
    _after_reset[connection] = command


def reset(connection: psycopg.Connection) -> None:
    """Undo what a handler has set: the login's settings, and the protocol's."""
    commands = ["SET SESSION AUTHORIZATION DEFAULT", "RESET ROLE", "RESET ALL", _after_reset.get(connection, "")]
    libpq.command(connection, "; ".join(filter(None, commands)).encode())
