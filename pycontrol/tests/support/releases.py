"""Wheels of rowpost in environments of their own, and the releases that are kept for the tests of upgrades."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RELEASES", "KeptRelease", "NotInstalled", "install", "install_with", "kept_releases"]

#: `make release-files` writes a release into this folder
RELEASES = Path(__file__).parents[1] / "data" / "releases"


class NotInstalled(Exception):
    """What pip wrote when it could not install something."""


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
    python = _install(folder, "--no-deps", "--no-index", wheel)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    dependencies = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "dependencies.pth").write_text("\n".join(dependencies) + "\n", encoding="utf-8")
    return python.with_name("rowpost")


def install_with(wheel: Path, folder: Path, *requirements: str) -> Path:
    """Install a wheel of rowpost and other packages into a new environment, as a user does, and return its program.

    What rowpost depends on comes from pip's index too, so that nothing of the tests' environment is visible.

    Raises:
        NotInstalled: pip finds a package nowhere.
    """
    return _install(folder, wheel, *requirements).with_name("rowpost")


def _install(folder: Path, *arguments: object) -> Path:
    """Make an environment and let pip install into it. Return its Python."""
    venv.create(folder)
    python = Path(sysconfig.get_path("scripts", "venv", {"base": str(folder)})) / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*map(str, (*pip, *arguments))], timeout=300, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise NotInstalled(done.stderr)
    return python
