"""`python -m benchmarks.overhead`: both sides run, what is on is on, and the goal is that of metrics."""

import doctest
import json
import re
import tempfile
from pathlib import Path

import pytest
from benchmarks.overhead import __main__ as overhead
from benchmarks.overhead.collector import collecting
from benchmarks.overhead.variants import OFF, VARIANTS
from benchmarks.suite import report
from benchmarks.suite.figures import Comparison, Scale
from benchmarks.suite.server import Server
from rich.console import Console

from rowpost.settings.environment import Settings

pytestmark = pytest.mark.bench

TINY = Scale(rounds=1, seconds=0.05, size=0.005)
ABOUT = {
    "old": OFF,
    "new": "metrics",
    "rounds": 15,
    "begun": "2026",
    "commit": "new1234",
    "postgresql": "18",
    "python": "3",
    "cores": 2,
    "load_before": 0.1,
}


@pytest.fixture(scope="module")
def server():
    """A server in a folder of its own: another user runs it, who may not enter the folders of pytest."""
    with tempfile.TemporaryDirectory(prefix="rowpost-", ignore_cleanup_errors=True) as folder:
        server = Server(Path(folder))
        yield server
        server.stop()


def test_rowpost_run_is_measured_with_and_without_metrics(server):
    section = overhead.measured(server, "metrics", "served", "", 1, TINY, Console(quiet=True))

    assert section["error"] == ""
    (figure,) = section["figures"]
    assert (figure["case"], figure["error"], len(figure["old"]), len(figure["new"])) == (
        "rowpost run, 2 workers",
        "",
        1,
        1,
    )
    assert figure["ratio"] > 0


def test_the_endpoint_benchmark_is_measured_with_spans_and_meters_that_reach_the_collector(server):
    with collecting() as collector:
        section = overhead.measured(server, "otlp", "endpoint", collector.url, 1, TINY, Console(quiet=True))
        requests = collector.requests

    assert section["error"] == ""
    assert {figure["error"] for figure in section["figures"]} == {""}
    assert {figure["case"] for figure in section["figures"]} == {
        f"{work}, {number}" for work in ("no-op", "insert") for number in ("1 worker", "2 workers")
    }
    assert requests > 0


def test_each_variant_switches_on_what_its_name_says():
    on = {name: variant.applied(name, Settings(), "http://collector") for name, variant in VARIANTS.items()}

    assert on[OFF] == Settings()
    assert on["metrics"].supervisor.metrics == 0
    assert {name: settings.telemetry and (settings.telemetry.traces, settings.telemetry.meters) for name, settings in on.items()} == {
        OFF: None, "metrics": None, "console": ("console", None), "memory": ("api", None), "otlp": ("otlp", "otlp"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("new", "reached"),
    [
        ((100.0,) * 6, True),
        ((98.0,) * 6, True),
        ((97.0,) * 6, False),
        ((90.0,) * 5 + (100.0,), True),
        ((97.5,) * 5 + (99.0,), False),
    ],
)
def test_metrics_cost_at_most_two_percent_or_the_interval_reaches_1(new, reached):
    section = report.comparison([Comparison("case", "name", "messages/s", (100.0,) * 6, new)], ABOUT, 1.0)

    assert overhead.reached("endpoint, metrics", section) is reached
    assert overhead.reached("endpoint, otlp", section)


def test_a_figure_that_was_not_measured_fails():
    failed = report.comparison([Comparison("case", "name", "messages/s", error="gone")], ABOUT, 1.0)
    none = report.comparison([], ABOUT, 1.0, "the old side failed")

    assert not overhead.reached("endpoint, otlp", failed)
    assert not overhead.reached("endpoint, otlp", none)
    assert doctest.testmod(overhead).failed == 0


def test_results_of_single_variants_are_put_together(tmp_path: Path, monkeypatch):
    section = report.comparison([Comparison("case", "name", "messages/s", (100.0,) * 6, (99.0,) * 6)], ABOUT, 1.0)
    monkeypatch.setattr(overhead.signal, "signal", lambda *_: None)
    for variant in ("metrics", "otlp"):
        monkeypatch.setattr(
            overhead,
            "run",
            lambda names, *_: (
                overhead._save(tmp_path, {f"endpoint, {names[0]}": section}) or {f"endpoint, {names[0]}": section}
            ),
        )
        assert overhead.main(["--only", variant, "--output", str(tmp_path)]) == 0

    assert sorted(json.loads((tmp_path / "overhead.json").read_text())) == ["endpoint, metrics", "endpoint, otlp"]
    assert re.search(
        r"\| case \| name \| 100 \| 99(?:\.0*)? \| messages/s \| 0\.990 ", (tmp_path / "overhead.md").read_text()
    )
