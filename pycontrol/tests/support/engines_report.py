"""pytest --engines-report FILE: which tests ran on which engine, as data; docs/engines.md is made of it.

Runs on several machines add up: an engine's features are replaced by those of the newest run that had them. An engine
bears the name and version that it gave itself.
"""

import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from rowpost.database.connection import Connection

__all__ = ["PLUGIN", "EnginesReport", "engine_name", "note_engine"]

PLUGIN = "rowpost engines report"
ENGINE = re.compile(r"\[(embedded|postgresql|sqlserver)\b")
FEATURE = re.compile(r"tests/(\w+/test_\w+)\.py")
TSQLT = "test_tsqlt.py::test_tsqlt["
RELEASES = {13: "2016", 14: "2017", 15: "2019", 16: "2022", 17: "2025"}


def engine_name(database: Connection, label: str) -> str:
    """What docs/engines.md calls an engine: PostgreSQL 15, Babelfish 4.4.0, SQL Server 2022."""
    if database.engine == "postgresql":
        major = database.driver_connection.info.server_version // 10_000
        return f"PostgreSQL {major}" + (" (embedded)" if label == "embedded" else "")
    ask = "SELECT CAST(SERVERPROPERTY('{}') AS nvarchar(100))"
    babelfish, product = (database.driver_connection.execute(ask.format(each)).fetchval() for each in ("BabelfishVersion", "ProductVersion"))
    if babelfish:
        return f"Babelfish {babelfish}"
    major = int(product.partition(".")[0])
    return f"SQL Server {RELEASES.get(major, major)}"


def note_engine(config: pytest.Config, label: str, database: Connection) -> None:
    """Tells a report, if one is written, what the engine of that label is."""
    report = config.pluginmanager.get_plugin(PLUGIN)
    if report is not None:
        report.names[label] = engine_name(database, label)


class EnginesReport:
    """Counts outcomes by engine and test file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: dict[str, dict[str, Counter]] = defaultdict(lambda: defaultdict(Counter))
        self.names: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        engine, feature = ENGINE.search(report.nodeid), FEATURE.search(report.nodeid)
        where = ("sqlserver", "tsqlt") if TSQLT in report.nodeid else (engine and engine[1], feature and feature[1].replace("/test_", "/"))
        if all(where) and (report.when == "call" or report.outcome != "passed"):
            self._counts[where[0]][where[1]][report.outcome] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        known = json.loads(self._path.read_text(encoding="utf-8")) if self._path.is_file() else {}
        for label, name in self.names.items():
            features = {feature: dict(sorted(counts.items())) for feature, counts in self._counts[label].items()}
            known.setdefault(name, {}).update(features)
        ordered = {name: dict(sorted(features.items())) for name, features in sorted(known.items()) if features}
        self._path.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")
