"""A password that is read anew whenever a connection opens, from a file or from the output of a program.

`SecretUrl` is a URL whose password comes from such a source, so that a rotated password or a token needs no restart.
What connects calls `read_password`. Nothing else reads the source: a plan or a script shows neither, and runs no
program.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from rowpost.errors import PasswordUnavailable

__all__ = ["PasswordSource", "SecretUrl", "hurry", "read_password", "watch", "with_its_password"]

#: within quotes of PostgreSQL's connection strings
_ESCAPED = str.maketrans({"\\": "\\\\", "'": "\\'"})

#: seconds that a program, or the writer of a pipe, may take
TIME_LIMIT_S = 30.0
#: bytes of the longest password; tokens have a few thousand
LONGEST = 65536
_HURRIED_LIMIT_S = 1.0
_POLL_S = 0.05
#: whether the process is to end, so that it waits no longer than necessary
_hurries = False


def hurry() -> None:
    """Wait for sources of passwords for at most a second from now on.

    Signal handlers of processes that are to end call it.
    """
    global _hurries  # noqa: PLW0603 -- a signal handler sets it, which may take no lock
    _hurries = True


def watch(is_asked_to_stop: Callable[[], bool]) -> None:
    """Let those who wait for a source of a password ask now and then whether the process is to end, as `hurry` says
    otherwise.
    """
    global _is_asked_to_stop  # noqa: PLW0603 -- one process, one answer
    _is_asked_to_stop = is_asked_to_stop


def _is_late(start: float) -> bool:
    return time.monotonic() - start > (_HURRIED_LIMIT_S if _hurries or _is_asked_to_stop() else TIME_LIMIT_S)


def _is_asked_to_stop() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class PasswordSource:
    """Where a password comes from: either a file, or a program with its arguments, which is started without a shell."""

    file: Path | None = None
    command: tuple[str, ...] = ()

    def read(self) -> str:
        """Return the password, without the end of its line and a byte order mark.

        Takes at most TIME_LIMIT_S, and 64 KiB.

        Raises:
            PasswordUnavailable: the file or the program cannot be read or started, does not end, or holds nothing.
                Neither the file's text nor the program's output is shown.
        """
        place = (
            f"the file {self.file}"
            if self.file is not None
            else f"the output of the password program {self.command[0]!r}"
        )
        found = _read_file(self.file) if self.file is not None else _run(self.command)
        if len(found) > LONGEST:
            raise PasswordUnavailable(f"The password cannot be read: {place} is longer than {LONGEST // 1024} KiB.")
        try:
            password = found.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError:
            raise PasswordUnavailable(f"The password cannot be read: {place} is not UTF-8.") from None
        if not password or "\n" in password or "\0" in password:
            raise PasswordUnavailable(f"The password cannot be read: {place} must hold one line that is not empty.")
        return password


def _read_file(path: Path) -> bytes:
    """Return a file's bytes, at most one more than LONGEST.

    A pipe may be named too: its writer has TIME_LIMIT_S for a line.
    """
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            return _read_descriptor(file, path)
        finally:
            os.close(file)
    except OSError as error:
        raise PasswordUnavailable(f"The password cannot be read from the file {path}: {error.strerror}.") from None


def _read_descriptor(file: int, path: Path) -> bytes:
    found, start, waits_for_writer = b"", time.monotonic(), not stat.S_ISREG(os.fstat(file).st_mode)
    while len(found) <= LONGEST:
        try:
            piece = os.read(file, LONGEST + 1 - len(found))
        except BlockingIOError:  # a writer has the pipe open
            if found.endswith(b"\n"):
                break
        else:
            found += piece
            if not piece and (found or not waits_for_writer):
                break
            if piece:
                continue
        if _is_late(start):
            raise PasswordUnavailable(
                f"The password cannot be read from the file {path}: it is a pipe, and nobody wrote a line to it in "
                "time."
            )
        time.sleep(_POLL_S)
    return found


def _run(command: Sequence[str]) -> bytes:
    """Return the output of a program, at most one byte more than LONGEST.

    The program is killed if it writes more or does not end.
    """
    start = time.monotonic()
    try:
        program = subprocess.Popen(  # noqa: S603 -- the environment names it, and no shell reads it
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        raise PasswordUnavailable(f"The password program {command[0]!r} cannot be started: {error.strerror}.") from None
    found, has_ended = None, False
    try:
        found = _output_of(program, start)
        while found is not None and len(found) <= LONGEST and program.poll() is None and not _is_late(start):
            time.sleep(_POLL_S / 10)
        has_ended = found is not None and program.poll() is not None
    finally:
        if not has_ended:
            _kill(program)
    if found is None or not (has_ended or len(found) > LONGEST):
        raise PasswordUnavailable(
            f"The password program {command[0]!r} did not end within {TIME_LIMIT_S:g} s, or before rowpost was to end."
        )
    if program.returncode and len(found) <= LONGEST:
        raise PasswordUnavailable(
            f"The password program {command[0]!r} ended with exit code {program.returncode}. Its output is not shown; "
            "run it by hand."
        )
    return found


def _output_of(program: subprocess.Popen[bytes], start: float) -> bytes | None:
    """Return what a program writes until it closes its output; None if it does not in time.

    A thread reads: Windows cannot wait for a pipe.
    """
    found: list[bytes] = []

    def read() -> None:
        if program.stdout is not None:
            with program.stdout as output:
                found.append(output.read(LONGEST + 1))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    while reader.is_alive() and not _is_late(start):
        reader.join(_POLL_S)
    return found[0] if found else None


def _kill(program: subprocess.Popen[bytes]) -> None:
    """End a program, with those that it started, which may hold its output open."""
    if sys.platform == "win32":
        program.kill()
    else:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    program.wait()


class SecretUrl(str):
    """A URL, or an ODBC connection string, without its password.

    Attributes:
        password: where its password comes from.
    """

    __slots__ = ("password",)
    password: PasswordSource

    def __new__(cls, url: str, password: PasswordSource) -> SecretUrl:
        made = super().__new__(cls, url)
        made.password = password
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return SecretUrl, (str(self), self.password)


def read_password(url: str) -> str | None:
    """Return the password for a URL whose password has a source of its own; None for every other URL.

    Raises:
        PasswordUnavailable: the source cannot be read.
    """
    return url.password.read() if isinstance(url, SecretUrl) else None


def with_its_password(url: str) -> str:
    """Return a URL, or an ODBC connection string, with the password whose source it has; every other URL as it is.

    Raises:
        PasswordUnavailable: the source cannot be read.
    """
    password = read_password(url)
    if password is None:
        return url
    parts = urlsplit(url)
    if parts.netloc:
        user, _, hosts = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{hosts}").geturl()
    if ";" in url:
        return f"{url.rstrip(';')};PWD={{{password.replace('}', '}}')}}}"
    return f"{url} password='{password.translate(_ESCAPED)}'"
