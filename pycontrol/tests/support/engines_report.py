"""Record which tests ran on which engine: the plugin behind `pytest --engines-report=FILE`.

The plugin writes two files. `docs/engines.md` and `docs/reference/behaviour.md` are made from them.

    FILE                outcomes per engine and test file; `docs/reference/engines.json` in the repository
    behaviour.json      next to FILE: outcomes per engine of each test with a `promise` marker

If the tests run side by side, each test's report tells the process that collects them which engine the test met.

Runs on several machines add up. A run replaces the outcomes of the test files and tests that it contains, and keeps
all others. An engine has the name and version that the server reports. Write the option with `=`: before pytest has found
the `conftest.py` that defines the option, it takes a separate FILE for the path of a test.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowpost.database.connection import Connection

__all__ = ["BEHAVIOUR", "PLUGIN", "WITHOUT_TARGET", "EnginesReport", "engine_name", "note_engine"]

PLUGIN = "rowpost engines report"
BEHAVIOUR = "behaviour.json"
#: label and name of the tests that do not use the fixture `target`: they need no database, or start their own server
WITHOUT_TARGET = "any"
FILE = re.compile(r"tests/(\w+/test_\w+)\.py::(\w+)")
TSQLT = "test_tsqlt.py::test_tsqlt["
RELEASES = {13: "2016", 14: "2017", 15: "2019", 16: "2022", 17: "2025"}


def engine_name(database: Connection, label: str) -> str:
    """Return the engine's name in the pages: `PostgreSQL 15`, `Babelfish 4.4.0`, `SQL Server 2022`."""
    if database.engine == "postgresql":
        major = database.driver_connection.info.server_version // 10_000
        return f"PostgreSQL {major}" + (" (embedded)" if label == "embedded" else "")
    ask = "SELECT CAST(SERVERPROPERTY('{}') AS nvarchar(100))"
    babelfish, product = (
        database.driver_connection.execute(ask.format(each)).fetchval()
        for each in ("BabelfishVersion", "ProductVersion")
    )
    if babelfish:
        return f"Babelfish {babelfish}"
    major = int(product.partition(".")[0])
    return f"SQL Server {RELEASES.get(major, major)}"


def note_engine(config: pytest.Config, label: str, database: Connection) -> None:
    """Record the engine of a label, if a report is written."""
    report = config.pluginmanager.get_plugin(PLUGIN)
    if report is not None:
        report.names[label] = engine_name(database, label)


class EnginesReport:
    """Count outcomes by engine and test file, and by engine and promised test."""

    def __init__(self, path: Path | None) -> None:
        """Take the file; None in a process of pytest-xdist that only runs tests."""
        self._path = path
        self._files: dict[str, dict[str, Counter]] = defaultdict(lambda: defaultdict(Counter))
        self._promised: dict[str, dict[str, Counter]] = defaultdict(lambda: defaultdict(Counter))
        self.names: dict[str, str] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Add the label of the engine: parameters of other fixtures can have the names of engines too."""
        report = yield
        callspec = getattr(item, "callspec", None)
        report.engine_label = callspec.params.get("target") if callspec else None
        report.engine_name = self.names.get(report.engine_label)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found, label = FILE.search(report.nodeid), report.engine_label
        if report.engine_name is not None:
            self.names[label] = report.engine_name
        if found is None or (report.when != "call" and report.outcome == "passed"):
            return
        file, test = found.groups()
        if TSQLT in report.nodeid:
            self._files["sqlserver"]["tsqlt"][report.outcome] += 1
        elif label:
            self._files[label][file.replace("/test_", "/")][report.outcome] += 1
        if "promise" in report.keywords:
            self._promised[label or WITHOUT_TARGET][f"{file}.py::{test}"][report.outcome] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._path is None:
            return
        _update(self._path, {name: self._files[label] for label, name in self.names.items()})
        promised = {**self.names, WITHOUT_TARGET: WITHOUT_TARGET}
        _update(self._path.with_name(BEHAVIOUR), {name: self._promised[label] for label, name in promised.items()})


def _update(path: Path, counted: dict[str, dict[str, Counter]]) -> None:
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for name, entries in counted.items():
        known.setdefault(name, {}).update({entry: dict(sorted(counts.items())) for entry, counts in entries.items()})
    ordered = {name: dict(sorted(entries.items())) for name, entries in sorted(known.items()) if entries}
    path.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")
