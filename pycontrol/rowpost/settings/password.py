"""A password that is read anew whenever a connection opens, from a file or from the output of a program.

`SecretUrl` is a URL whose password comes from such a source, so that a rotated password or a token needs no restart. What connects
calls `read_password`. Nothing else reads the source: a plan or a script shows neither, and runs no program.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rowpost.errors import PasswordUnavailable

__all__ = ["PasswordSource", "SecretUrl", "read_password"]

#: seconds that a program may take
TIME_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class PasswordSource:
    """Where a password comes from: either a file, or a program with its arguments, which is started without a shell."""

    file: Path | None = None
    command: tuple[str, ...] = ()

    def read(self) -> str:
        """Return the password, without the end of its line.

        Raises:
            PasswordUnavailable: the file or the program cannot be read or started, or holds nothing. Neither the file's text nor the
                program's output is shown.
        """
        text = self._read_file(self.file) if self.file is not None else self._run(self.command)
        password = text.rstrip("\r\n")
        if not password or "\n" in password or "\0" in password:
            place = f"the file {self.file}" if self.file is not None else f"the output of {self.command[0]!r}"
            raise PasswordUnavailable(f"The password cannot be read: {place} must hold one line that is not empty.")
        return password

    def _read_file(self, path: Path) -> str:
        try:
            return path.read_text(encoding="utf-8")
        except OSError as error:
            raise PasswordUnavailable(f"The password cannot be read from the file {path}: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise PasswordUnavailable(f"The password cannot be read from the file {path}: it is not UTF-8.") from None

    def _run(self, command: Sequence[str]) -> str:
        program = command[0]
        try:
            ended = subprocess.run(  # noqa: S603 -- the environment names it, and no shell reads it
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIME_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise PasswordUnavailable(f"The password program {program!r} did not end within {TIME_LIMIT_S:g} s.") from None
        except OSError as error:
            raise PasswordUnavailable(f"The password program {program!r} cannot be started: {error.strerror}.") from None
        if ended.returncode != 0:
            raise PasswordUnavailable(
                f"The password program {program!r} ended with exit code {ended.returncode}. Its output is not shown; run it by hand."
            )
        try:
            return ended.stdout.decode("utf-8")
        except UnicodeDecodeError:
            raise PasswordUnavailable(f"The output of the password program {program!r} is not UTF-8.") from None


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
