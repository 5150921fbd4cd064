"""PgBouncer in front of the target's PostgreSQL, with a database for each of its modes."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.workers import eventually

__all__ = ["pgbouncer"]

MODES = ("session", "transaction", "statement")
PORT = 6432


@pytest.fixture(scope="module")
def pgbouncer(target) -> Iterator[Callable[[str], str]]:
    """Return the URL of the target's database through PgBouncer, by the mode: session, transaction or statement."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed: apt install pgbouncer")
    if target.settings.engine != "postgresql":
        pytest.skip("PgBouncer speaks PostgreSQL's protocol only")
    with tempfile.TemporaryDirectory(prefix="rowpost-pgbouncer-") as name, psycopg.connect(target.url) as connection:
        folder, info = Path(name), connection.info
        user = _user(info.host)
        shutil.chown(folder, user)
        server = f"host={info.host} port={info.port} dbname={info.dbname} user={info.user} password={info.password or 'none'}"
        (folder / "pgbouncer.ini").write_text(
            "[databases]\n"
            + "".join(f"{mode} = {server} pool_mode={mode}\n" for mode in MODES)
            + f"[pgbouncer]\nlisten_addr =\nlisten_port = {PORT}\nunix_socket_dir = {folder}\nauth_type = any\n",
            encoding="utf-8",
        )
        (folder / "pgbouncer.ini").chmod(0o644)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([program, folder / "pgbouncer.ini"], stdout=log, stderr=log, user=user)
        try:
            eventually((folder / f".s.PGSQL.{PORT}").exists, f"PgBouncer listens: {(folder / 'log').read_text()}")
            yield lambda mode: f"postgresql://{info.user}@/{mode}?host={folder}&port={PORT}"
        finally:
            process.kill()
            process.wait()


def _user(host: str) -> str:
    """The user who may open the server's socket: PgBouncer does not run as root."""
    if os.getuid():
        return pwd.getpwuid(os.getuid()).pw_name
    return pwd.getpwuid(os.stat(host).st_uid).pw_name if host.startswith("/") else "nobody"
