"""Wheels of rowpost in environments of their own, and the releases that are kept for the tests of upgrades."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RELEASES", "KeptRelease", "install", "kept_releases"]

#: `make release-files` writes a release into this folder
RELEASES = Path(__file__).parents[1] / "data" / "releases"


@dataclass(frozen=True)
class KeptRelease:
    """The files of a release."""

    version: str

    @property
    def wheel(self) -> Path:
        return RELEASES / self.version / f"rowpost-{self.version}-py3-none-any.whl"

    @property
    def archive(self) -> Path:
        return RELEASES / self.version / f"rowpost-{self.version}.zip"


def kept_releases() -> list[KeptRelease]:
    """Return the kept releases, oldest first."""
    versions = [path.name for path in RELEASES.iterdir() if path.is_dir()]
    return [KeptRelease(each) for each in sorted(versions, key=lambda version: [*map(int, version.split("."))])]


def install(wheel: Path, folder: Path) -> Path:
    """Install a wheel of rowpost into a new environment, and return its program.

    No index is needed: what rowpost depends on is found in the environment of the tests, whose own rowpost is not. That
    one is an editable installation, and Python follows the .pth file of one only in an environment's own site-packages.
    """
    venv.create(folder)
    python = Path(sysconfig.get_path("scripts", "venv", {"base": str(folder)})) / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*map(str, pip), "--no-deps", "--no-index", str(wheel)], check=True, timeout=120)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    dependencies = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "dependencies.pth").write_text("\n".join(dependencies) + "\n", encoding="utf-8")
    return python.with_name("rowpost")
