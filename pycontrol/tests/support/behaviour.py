"""The promises of `docs/reference/behaviour.yml`, the tests that hold them, and the page that lists both.

A test names the promises that it holds by a marker: `@pytest.mark.promise("oldest-first")`. `marked_tests` reads the
markers from the source files, so the page does not depend on what an engine at hand can run. Outcomes per engine come
from `docs/reference/behaviour.json`, which `pytest --engines-report=docs/reference/engines.json` updates.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.support.engines_report import BEHAVIOUR, WITHOUT_TARGET

__all__ = [
    "TESTS",
    "MarkedTest",
    "behaviour_page",
    "marked_tests",
    "markers_of",
    "promises",
    "prune_recorded",
    "recorded",
]

TESTS = Path(__file__).resolve().parents[1]
REFERENCE = TESTS.parents[1] / "docs" / "reference"

HEAD = """
# Guaranteed behaviour

This page lists what rowpost promises on every engine. Each promise names the tests that hold it and the engines on
which these tests were executed. The engines are those of the recorded test runs in `behaviour.json`.

- *passed* means that all tests of the promise passed on that engine.
- *passed, skipped in part* means that a test was skipped there. Run the test with `-rs` to see the reason.
- A dash means that no run on that engine is recorded.
- *SQL Server: compiled* means that the T-SQL was compiled with Microsoft's compiler, but not executed on SQL Server.
- *any engine* stands for tests that do not use a shared test database: they need no database, or start their own one.

To run the tests of all promises, use `python -m pytest -m promise`.
"""


class MarkedTest(NamedTuple):
    """One test function, and the keys of the promises in its markers."""

    path: str
    name: str
    keys: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"{self.path}::{self.name}"


@cache
def promises() -> dict[str, dict[str, str]]:
    """Return the text of each promise by topic and key, in the order of the page."""
    return yaml.safe_load((REFERENCE / "behaviour.yml").read_text(encoding="utf-8"))


@cache
def marked_tests() -> tuple[MarkedTest, ...]:
    """Return all tests with a `promise` marker, ordered by file and position."""
    found: list[MarkedTest] = []
    for path in sorted(TESTS.rglob("test_*.py")):
        found += markers_of(path.read_text(encoding="utf-8"), path.relative_to(TESTS).as_posix())
    return tuple(found)


def markers_of(source: str, path: str) -> Iterator[MarkedTest]:
    """Yield the tests of one file that have a `promise` marker."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            calls = [each for each in node.decorator_list if isinstance(each, ast.Call)]
            keys = [
                ast.literal_eval(argument)
                for call in calls
                if ast.unparse(call.func) == "pytest.mark.promise"
                for argument in call.args
            ]
            if keys:
                yield MarkedTest(path, node.name, tuple(keys))


def recorded() -> dict[str, dict[str, dict[str, int]]]:
    """Return the counts of outcomes by engine and test, or nothing if no run was recorded."""
    path = REFERENCE / BEHAVIOUR
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def prune_recorded() -> None:
    """Remove the recorded outcomes of tests that were renamed or deleted."""
    known = {test.id for test in marked_tests()}
    kept = {
        engine: {name: counts for name, counts in tests.items() if name in known}
        for engine, tests in recorded().items()
    }
    (REFERENCE / BEHAVIOUR).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def behaviour_page(made: str, engines: Iterable[str]) -> str:
    """Return `docs/reference/behaviour.md`.

    Args:
        made: the comment that says how the page is made.
        engines: the engines' names, in the order of the page.
    """
    results, tests = recorded(), marked_tests()
    parts = [made + HEAD]
    for topic, texts in promises().items():
        parts.append(f"\n## {topic}\n")
        for key, text in texts.items():
            holding = [test for test in tests if key in test.keys]
            parts.append(f"\n### {key}\n\n{text}\n\n{_executed(holding, results, engines)}\n\n")
            parts += [f"- `{test.path}`: `{test.name}`\n" for test in holding]
    return "".join(parts)


def _executed(tests: list[MarkedTest], results: dict[str, dict[str, dict[str, int]]], engines: Iterable[str]) -> str:
    """Return the line that says on which engines the tests of one promise were executed."""
    alone = results.get(WITHOUT_TARGET, {})
    shared = [test for test in tests if test.id not in alone]
    words = [f"{engine}: {_outcome(shared, results.get(engine, {}))}" for engine in engines if shared]
    if shared and not any(engine.startswith("SQL Server") for engine in engines):
        words.append("SQL Server: compiled")
    if len(shared) < len(tests):
        words.append(f"any engine: {_outcome([test for test in tests if test.id in alone], alone)}")
    return "Executed on " + "; ".join(words) + "."


def _outcome(tests: list[MarkedTest], results: dict[str, dict[str, int]]) -> str:
    counts = [results[test.id] for test in tests if test.id in results]
    if any(each.get("failed") for each in counts):
        return "**failed**"
    if not any(each.get("passed") for each in counts):
        return "skipped" if counts else "-"
    partly = len(counts) < len(tests) or any(each.get("skipped") for each in counts)
    return "passed, skipped in part" if partly else "passed"
