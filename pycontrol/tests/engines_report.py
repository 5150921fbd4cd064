"""pytest --engines-report FILE: which tests ran on which engine, as data; docs/engines.md is made of it.

Runs on several machines add up: an engine's features are replaced by those of the newest run that had them.
"""

import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

ENGINE = re.compile(r"\[(embedded|postgresql|sqlserver)\b")
FEATURE = re.compile(r"(?:conformance|deploy|concurrency)/test_(\w+)\.py")


class EnginesReport:
    """Counts outcomes by engine and test file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: dict[str, dict[str, Counter]] = defaultdict(lambda: defaultdict(Counter))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        engine, feature = ENGINE.search(report.nodeid), FEATURE.search(report.nodeid)
        if engine and feature and (report.when == "call" or report.outcome != "passed"):
            self._counts[engine[1]][feature[1]][report.outcome] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        known = json.loads(self._path.read_text(encoding="utf-8")) if self._path.is_file() else {}
        for engine, features in self._counts.items():
            known.setdefault(engine, {}).update({name: dict(sorted(counts.items())) for name, counts in features.items()})
        ordered = {engine: dict(sorted(features.items())) for engine, features in sorted(known.items())}
        self._path.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")
