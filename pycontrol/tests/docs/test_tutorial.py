"""The tutorial and the README, block by block, as a reader types them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.support.documents import ROOT, Block, blocks, typed_lines

pytestmark = pytest.mark.dist

#: lines that are not run, and the reason
NOT_RUN = {
    "make run": "runs the demo: tests/cli/test_demo.py",
    "make test": "runs the tests",
    "pip install": "installs packages",
    "rowpost archive": "runs until it is stopped: tests/archive/test_exactly_once.py",
    "rowpost spark": "starts Spark: tests/spark/test_cli.py",
}
PAGES = {"README.md": 2, "docs/tutorial.md": 6}  # and how many lines of output each promises at least


@pytest.fixture
def shell(tmp_path: Path, data_folder: Path, embedded_url: str):
    """Run lines in one folder, with the variables that were exported so far, in an empty database."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ROWPOST_")}
    path = f"{Path(sys.executable).parent}:{inherited['PATH']}"
    variables = {**inherited, "PATH": path, "ROWPOST_DATA": str(data_folder)}
    with psycopg.connect(embedded_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS rowpost CASCADE")
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")

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


def is_run(block: Block, line: str) -> bool:
    return block.language == "console" and not any(line.startswith(part) for part in NOT_RUN)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_does_what_it_says(page: str, shell, tmp_path: Path):
    promised = 0
    for block in blocks(ROOT / page):
        if block.file:
            (tmp_path / block.file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
            continue
        said = ""
        for line in block.text.splitlines() if any(is_run(block, line) for line in typed_lines(block)) else ():
            if not line.startswith("$ "):
                promised += 1
                assert line in said, f"{line!r} is not in:\n{said}"
            elif is_run(block, line.removeprefix("$ ")):
                said = shell(line.removeprefix("$ "))

    assert promised >= PAGES[page]
