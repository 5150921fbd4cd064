"""python -m benchmarks.overhead: throughput with and without metrics, and with and without tracing, in pairs.

    python -m benchmarks.overhead                               # 15 pairs of each figure, about 35 minutes
    python -m benchmarks.overhead --only metrics --pairs 31
    python -m benchmarks.overhead --quick                       # does it run? two short pairs, into .quick/

The machinery is that of `python -m benchmarks --against COMMIT`: two processes with databases of their own on one server, which take turns, a
ratio for each pair, and the interval of their median. Here both have the code of this checkout. "old" is the side where nothing is on.

The goal: with metrics at least 0.98 of the throughput without, or an interval that reaches 1. Tracing has no goal. The exit code is 1 if
the goal is missed, or a figure was not measured.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from benchmarks.overhead.collector import collecting
from benchmarks.overhead.variants import OFF, VARIANTS
from benchmarks.suite import report
from benchmarks.suite.against import NEW, OLD, PAIRS, Pairs, measure_pairs, started_side
from benchmarks.suite.figures import Scale
from benchmarks.suite.server import Server

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
QUICK = Scale(rounds=1, seconds=0.1, size=0.01)
USUAL = Scale(rounds=1, seconds=0.3)
#: of the throughput without metrics
GOAL = 0.98
FILE = "overhead"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and save. Return 1 if the goal is missed, or a figure was not measured."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead", description="Measure what metrics and tracing cost, in pairs."
    )
    names = [name for name in VARIANTS if name != OFF]
    parser.add_argument(
        "--only", nargs="+", choices=names, metavar="VARIANT", help=f"measure only these: {', '.join(names)}"
    )
    parser.add_argument("--pairs", type=int, help=f"pairs of rounds of each figure ({PAIRS}, with --quick 2)")
    parser.add_argument(
        "--seconds", type=float, default=USUAL.seconds, help="approximate duration of a round (%(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="two short pairs, to check that it works")
    parser.add_argument(
        "--output", type=Path, help=f"folder for the table and the data ({RESULTS.name}, with --quick .quick)"
    )
    options = parser.parse_args(arguments)
    pairs = options.pairs if options.pairs is not None else 2 if options.quick else PAIRS
    if pairs < 1:
        parser.error(f"--pairs must be at least 1 (got {pairs})")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # otherwise the server would keep running
    scale = QUICK if options.quick else Scale(1, options.seconds)
    output = options.output or (RESULTS.with_name(".quick") if options.quick else RESULTS)
    sections = run(options.only or names, pairs, scale, output, Console(stderr=True, width=150))
    Console(width=150).print(Markdown(report.comparison_table(sections)))
    return 0 if all(reached(name, section) for name, section in sections.items()) else 1


def reached(name: str, section: dict[str, Any]) -> bool:
    """Whether a section was measured whole, and reached the goal if it has one.

    >>> reached("endpoint, metrics", {"error": "", "figures": [{"error": "", "ratio": 0.95, "interval": [0.9, 1.01]}]})
    True
    """
    if section["error"] or not section["figures"] or any(each["error"] for each in section["figures"]):
        return False
    return not name.endswith(" metrics") or all(
        each["ratio"] >= GOAL or not each["interval"] or each["interval"][1] >= 1 for each in section["figures"]
    )


def run(variants: Sequence[str], pairs: int, scale: Scale, output: Path, tell: Console) -> dict[str, Any]:
    """Measure each variant's workloads, and save each section. Return the sections by name."""
    sections: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="rowpost-bench-", ignore_cleanup_errors=True) as name,
        collecting() as collector,
    ):
        server = Server(Path(name))
        try:
            for variant in variants:
                for workload in VARIANTS[variant].workloads:
                    section = f"{workload}, {variant}"
                    tell.print(f"{time.strftime('%H:%M:%S')}  {section}")
                    sections[section] = measured(server, variant, workload, collector.url, pairs, scale, tell)
                    _save(output, sections)
        finally:
            server.stop()
    return sections


def measured(
    server: Server, variant: str, workload: str, collector: str, pairs: int, scale: Scale, tell: Console
) -> dict[str, Any]:
    """Measure one workload with and without a variant, in pairs. Return the section of the results."""
    about = {**report.circumstances(server, pairs, {}), "old": OFF, "new": variant}
    started, found, error = time.monotonic(), Pairs(tell), ""
    on = {OLD: OFF, NEW: variant}

    def start(side: str):
        command = (
            "-m",
            "benchmarks.overhead.side",
            str(ROOT),
            str(server.folder),
            side,
            on[side],
            workload,
            collector,
            json.dumps(asdict(scale)),
        )
        return started_side(side, ROOT, *command)

    try:
        measure_pairs(start, pairs, found)
    except Exception as failure:  # noqa: BLE001 the other variants are still measured
        error = f"{type(failure).__name__}: {failure}"
        tell.print(f"[red]{workload}, {variant} failed[/]: {error}")
    return report.comparison(found.comparisons(), about, time.monotonic() - started, error)


def _save(output: Path, sections: dict[str, Any]) -> None:
    output.mkdir(parents=True, exist_ok=True)
    found = {**report.load(output, f"{FILE}.json"), **sections}
    (output / f"{FILE}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (output / f"{FILE}.md").write_text(report.comparison_table(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
