"""A PostgreSQL with a streaming standby, of the embedded server's programs, to fail over in a test."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest

from tests.support.postgres import Server
from tests.support.workers import eventually

__all__ = ["Pair", "PasswordServer", "lasting_pair", "pair", "password_server"]


class Pair:
    """A primary and its standby. `url` leads to the primary, and after `fail_over` to the promoted standby."""

    def __init__(self, folder: Path) -> None:
        self._primary, self._standby = Server(folder / "p"), Server(folder / "s")
        self.url = self._primary.url()

    def start(self) -> None:
        self._primary.create()
        self._primary.start()
        self._standby.copy(self._primary)
        self._standby.start()

    def caught_up(self) -> str:
        """Wait until the standby has everything, and return its URL."""
        with psycopg.connect(self.url, autocommit=True) as primary:
            at = primary.execute("SELECT pg_current_wal_lsn()").fetchone()[0]
        with psycopg.connect(self._standby.url(), autocommit=True) as standby:
            caught_up = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
            eventually(lambda: standby.execute(caught_up, (at,)).fetchone()[0], "the standby has everything")
        return self._standby.url()

    def fail_over(self) -> None:
        """Stop the primary at once and promote the standby, which has everything but has reached no restart point since it began."""
        self.url = self.caught_up()
        self._primary.stop()
        self._standby.promote()

    def stop(self) -> None:
        for server in (self._primary, self._standby):
            server.stop()


class PasswordServer(Pair):
    """A server without a standby that asks everybody but postgres for a password."""

    def start(self) -> None:
        self._primary.create()
        (self._primary.folder / "pg_hba.conf").write_text("local all postgres trust\nlocal all all scram-sha-256\n")
        self._primary.start()


Made = TypeVar("Made", bound=Pair)


@pytest.fixture(scope="module")
def password_server() -> Iterator[PasswordServer]:
    """A server that asks for passwords, for all tests of a module."""
    with _started(PasswordServer) as server:
        yield server


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A primary with a standby that follows it; both are stopped after the test."""
    with _started(Pair) as made:
        yield made


@pytest.fixture(scope="module")
def lasting_pair() -> Iterator[Pair]:
    """The same for all tests of a module, which do not fail over."""
    with _started(Pair) as made:
        yield made


@contextmanager
def _started(kind: type[Made]) -> Iterator[Made]:
    with tempfile.TemporaryDirectory(prefix="rowpost-", ignore_cleanup_errors=True) as name:
        made = kind(Path(name))
        try:
            made.start()
            yield made
        finally:
            made.stop()
