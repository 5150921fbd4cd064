"""What a container engine makes of a Dockerfile, without an engine and without an image.

`Image` reads the Dockerfile. `Container` runs its commands as process 1 of a PID namespace. In place of the image's
folders, those of a folder that is made here are mounted: what the Dockerfile copies, the programs, and secrets. The rest
is this machine's: its Python with rowpost, its network, and its user.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.console import programs
from tests.support.documents import ROOT

__all__ = ["OWN_PIDS", "Container", "Image", "can_have_own_pids"]

OWN_PIDS = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
#: mounts the made folders, in a namespace of its own, and becomes the command
_BECOME = """
for each in opt srv run; do mount --bind "$ROOTFS/$each" "/$each"; done
mount --bind "$ROOTFS/hosts" /etc/hosts
cd "$1"; shift; exec "$@"
"""


def can_have_own_pids() -> bool:
    """Whether this user may start a process in a PID namespace, as containers do."""
    return bool(shutil.which("unshare")) and subprocess.run([*OWN_PIDS, "true"], capture_output=True).returncode == 0


class Image:
    """The last stage of a Dockerfile.

    Attributes:
        entrypoint, command: lists of words. A line for a shell is no list, and is refused.
        health: the command of the health check.
        variables: those of ENV, with $PATH as it is written.
        folder: the working folder.
        copies: what is copied from the repository: each file with its folder.
    """

    def __init__(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        stages = re.split(r"^FROM .*$", text, flags=re.MULTILINE)
        lines = [line for line in stages[-1].splitlines() if line and not line.startswith("#")]
        self._lines = [tuple(line.split(" ", 1)) for line in lines]
        self.entrypoint, self.command = self._words("ENTRYPOINT"), self._words("CMD")
        self.health: list[str] = json.loads(self.last("HEALTHCHECK").partition("CMD ")[2])
        self.variables = dict(each.split("=", 1) for each in self.last("ENV").split())
        self.folder = self.last("WORKDIR")
        copied = [line.split() for name, line in self._lines if name == "COPY" and not line.startswith("--from")]
        self.copies = [(ROOT / file, folder) for *files, folder in copied for file in files]

    def last(self, instruction: str) -> str:
        """Return the arguments of the last instruction of a name."""
        return [line for name, line in self._lines if name == instruction][-1]

    def _words(self, instruction: str) -> list[str]:
        return [str(word) for word in json.loads(self.last(instruction))]


class Container:
    """Runs commands of an image, all on one file system.

    Args:
        image: the image.
        folder: an empty one, for what is mounted.
        hosts: addresses by name.
        secrets: the contents of files in /run/secrets.
    """

    def __init__(self, image: Image, folder: Path, hosts: dict[str, str], secrets: dict[str, str]) -> None:
        self.image, self._rootfs = image, folder
        for name in ("opt/app", "srv", "run/secrets"):
            (folder / name).mkdir(parents=True)
        programs(folder / "opt" / "app" / "bin", "rowpost")
        for file, place in image.copies:
            (folder / place.strip("/")).mkdir(parents=True, exist_ok=True)
            shutil.copy(file, folder / place.strip("/"))
        for name, secret in secrets.items():
            (folder / "run" / "secrets" / name).write_text(secret)
        (folder / "hosts").write_text("".join(f"{address} {name}\n" for name, address in hosts.items()))

    def start(self, command: Sequence[str] | None = None) -> subprocess.Popen[str]:
        """Start the entry point with a command, by default the image's, as process 1. Its child is that process."""
        words = self.image.command if command is None else command
        return self._popen([*self.image.entrypoint, *words])

    def run(self, *command: str) -> tuple[int, str]:
        """Run the entry point with a command; return its exit code and its output."""
        return _ended(self.start(command))

    @contextmanager
    def without_secrets(self) -> Iterator[None]:
        """Take the secrets away until the block ends."""
        kept = (self._rootfs / "run" / "secrets").rename(self._rootfs / "kept")
        yield
        kept.rename(self._rootfs / "run" / "secrets")

    def healthy(self) -> bool:
        """Run the health check."""
        return _ended(self._popen(self.image.health))[0] == 0

    def _popen(self, words: Sequence[str]) -> subprocess.Popen[str]:
        path = self.image.variables["PATH"].replace("$PATH", os.environ["PATH"])
        variables = {**self.image.variables, "PATH": path, "ROOTFS": str(self._rootfs)}
        shell = ["sh", "-euc", _BECOME, "sh", self.image.folder]
        return subprocess.Popen(
            [*OWN_PIDS, *shell, *words],
            env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip


def _ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said = process.communicate(timeout=120)[0]
    return process.returncode, said
