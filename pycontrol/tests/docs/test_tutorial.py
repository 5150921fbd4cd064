"""The tutorial, block by block, as somebody would type it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def shell(tmp_path: Path, data_folder: Path, embedded_url: str):
    """Runs lines in one folder, with the variables that were exported so far."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ROWPOST_")}
    path = f"{Path(sys.executable).parent}:{inherited['PATH']}"
    variables = {**inherited, "PATH": path, "ROWPOST_DATA": str(data_folder)}

    def run(line: str) -> str:
        if export := re.fullmatch(r"export (\w+)=(\S*)", line):
            variables[export[1]] = export[2]
            return ""
        done = subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"$ {line}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    return run


def test_the_tutorial_does_what_it_says(shell, tmp_path: Path):
    promised = 0
    for kind, file, text in BLOCK.findall(TUTORIAL.read_text(encoding="utf-8")):
        if file:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text(text, encoding="utf-8")
        elif kind == "console":
            said = ""
            for line in text.splitlines():
                if line.startswith("$ "):
                    said = shell(line.removeprefix("$ "))
                else:
                    promised += 1
                    assert line in said, f"{line!r} is not in:\n{said}"

    assert promised > 5
