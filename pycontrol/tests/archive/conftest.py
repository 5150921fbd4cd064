"""Queues, archives, and the command that archives without Spark. No test in this folder starts a JVM, except test_changed_hands.py."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from rowpost.cli.app import app
from tests.support.spark.queues import Queues


@pytest.fixture(scope="session")
def queues(lasting_database: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Queues:
    url = lasting_database("embedded")
    return Queues(url, tmp_path_factory.mktemp("environment"), named_url=f'"{url}"')


@dataclass
class Place:
    """An archive in a folder of the test, and the command that writes to it."""

    queues: Queues
    path: Path

    def run(self, queue: str, *options: object) -> tuple[int, dict | None, str]:
        """Run `rowpost archive`. Returns its exit code, the JSON of its last line, and its stderr."""
        ended = CliRunner().invoke(
            app, ["--env", self.queues.environment, "archive", queue, str(self.path), *map(str, options)]
        )
        lines = ended.stdout.strip().splitlines()
        return ended.exit_code, json.loads(lines[-1]) if lines else None, ended.stderr

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(str(self.path))

    def bodies(self) -> list[int]:
        """Return the numbers that the archived bodies are."""
        return sorted(int(body) for body in self.table.to_pyarrow_table(columns=["body"])["body"].to_pylist())


@pytest.fixture
def place(queues: Queues, tmp_path: Path) -> Place:
    return Place(queues, tmp_path / "archive")
