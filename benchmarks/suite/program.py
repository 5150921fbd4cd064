"""The command line of the suite: `python -m benchmarks`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from rich.console import Console
from rich.markdown import Markdown

from benchmarks.suite import against, peers, report
from benchmarks.suite.figures import Lines, Scale
from benchmarks.suite.server import Server
from benchmarks.suite.workers import make_ready
from benchmarks.suite.workloads import WORKLOADS

__all__ = ["main", "run"]

RESULTS = Path(__file__).parents[1] / "results"
TRIAL = RESULTS.with_name(".quick")
QUICK = Scale(rounds=2, seconds=0.1, size=0.01)
AGAINST = Scale(rounds=1, seconds=0.3)


def main(arguments: list[str] | None = None) -> int:
    """Run the suite. Return 1 if a workload failed; the figures do not affect the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure rowpost's speed, compared with its peers."
    )
    names = ", ".join(WORKLOADS)
    parser.add_argument(
        "--only", nargs="+", choices=WORKLOADS, metavar="WORKLOAD", help=f"run only these workloads: {names}"
    )
    parser.add_argument(
        "--skip", nargs="+", choices=WORKLOADS, metavar="WORKLOAD", default=[], help="run all workloads except these"
    )
    parser.add_argument(
        "--rounds", type=int, default=Scale.rounds, help="alternating rounds of each line (%(default)s)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        help=f"approximate duration of a round ({Scale.seconds}, with --against {AGAINST.seconds})",
    )
    parser.add_argument("--against", metavar="COMMIT", help="compare this checkout with a commit, in pairs of rounds, without peers: "
                        f"{', '.join(against.COMPARED)}; the exit code is 1 if a figure is slower or was not measured")  # fmt: skip
    parser.add_argument(
        "--pairs", type=int, help=f"with --against: pairs of rounds of each figure ({against.PAIRS}, with --quick 2)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a hundredth of the rows and two short rounds, to check that the suite works",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help=f"folder for the table, the data and the charts ({RESULTS.name}, with --quick {TRIAL.name})",
    )
    parser.add_argument(
        "--charts", action="store_true", help="write the table and the charts again from the data, without measuring"
    )
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # otherwise the server would keep running
    output = options.output or (TRIAL if options.quick else RESULTS)
    tell = Console(stderr=True, width=150)
    if options.against:
        return _compare(parser, options, output, tell)
    if options.pairs is not None:
        parser.error("--pairs needs --against COMMIT")
    failed = []
    if not options.charts:
        scale = QUICK if options.quick else Scale(options.rounds, options.seconds or Scale.seconds)
        chosen = [name for name in options.only or WORKLOADS if name not in options.skip]
        failed = run(chosen, scale, output, tell)
    sections = report.load(output)
    report.save(output, sections)
    _draw(output, sections, tell)
    Console(width=150).print(Markdown(report.summary(sections)))
    return 1 if failed else 0


def _compare(parser: argparse.ArgumentParser, options: argparse.Namespace, output: Path, tell: Console) -> int:
    """Compare with another commit. Return 1 if a figure is slower or was not measured, else 0."""
    if options.charts:
        parser.error("--charts and --against cannot be combined: a comparison has no charts")
    others = set(options.only or ()) - {*against.COMPARED}
    if others:
        parser.error(f"--against cannot compare {', '.join(sorted(others))}: choose from {', '.join(against.COMPARED)}")
    pairs = options.pairs if options.pairs is not None else QUICK.rounds if options.quick else against.PAIRS
    if pairs < 1:
        parser.error(f"--pairs must be at least 1 (got {pairs})")
    scale = QUICK if options.quick else replace(AGAINST, seconds=options.seconds or AGAINST.seconds)
    chosen = [name for name in options.only or against.COMPARED if name not in options.skip]
    try:
        commits = against.find_commits(options.against)
        sections = against.run(commits, chosen, pairs, scale, output, tell)
    except against.CommitNotFound as error:
        parser.error(str(error))
    Console(width=150).print(Markdown(report.comparison_table(sections)))
    failed = any(each["error"] or not each["figures"] for each in sections.values())
    return int(failed or not all(figure["passed"] for each in sections.values() for figure in each["figures"]))


def run(chosen: list[str], scale: Scale, output: Path, tell: Console) -> list[str]:
    """Run workloads one after the other on one server. Return the names of those that failed; the others still run."""
    if any(getattr(WORKLOADS[name], "WITH_PEERS", False) for name in chosen):
        for name, reason in peers.install(tell).items():
            tell.print(f"[red]{name} cannot be installed[/]: {reason}")
    failed = []
    with tempfile.TemporaryDirectory(prefix="rowpost-bench-", ignore_cleanup_errors=True) as folder:
        (Path(folder) / "notes").mkdir()
        make_ready(Path(folder) / "notes")
        server = Server(Path(folder))
        try:
            for name in chosen:
                tell.print(f"{time.strftime('%H:%M:%S')}  {name}")
                section = _measure(WORKLOADS[name], server, scale)
                if section["error"]:
                    failed.append(name)
                    tell.print(f"[red]{name} failed[/]: {section['error']}")
                found = {**report.load(output), name: section}
                report.save(output, {each: found[each] for each in WORKLOADS if each in found})
        finally:
            server.stop()
    return failed


def _measure(workload: ModuleType, server: Server, scale: Scale) -> dict:
    title, _, text = (workload.__doc__ or "").strip().partition("\n")
    about = report.circumstances(server, scale.rounds, peers.versions())
    started, lines, error = time.monotonic(), [], ""
    try:
        lines = workload.measure(server, scale)
    except Exception as failure:  # noqa: BLE001 the other workloads are still measured
        traceback.print_exc()
        error = f"{type(failure).__name__}: {failure}"
    targets = workload.targets(Lines(lines))
    return report.section(title.rstrip("."), text.strip(), lines, targets, about, time.monotonic() - started, error)


def _draw(output: Path, sections: dict, tell: Console) -> None:
    try:
        from benchmarks.suite import charts
    except ImportError as error:
        tell.print(f"[red]no charts[/]: {error}. Run: pip install 'rowpost[bench]'")
        return
    charts.draw_targets(output, sections)
    for name, section in sections.items():
        try:
            charts.draw(output, name, section)
        except Exception as error:  # noqa: BLE001 the figures are kept without a chart
            tell.print(f"[red]no chart of {name}[/]: {type(error).__name__}: {error}")
