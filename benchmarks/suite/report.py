"""Write the data file and the table. Both are written again after each workload, so that an interrupted run keeps its results.

bench.json has one section for each workload, with the circumstances of its run. A partial run replaces only the sections
that it measured. bench.md is generated from bench.json alone.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.suite.figures import Comparison, Line, Target

__all__ = [
    "DATA",
    "TABLE",
    "against_file",
    "circumstances",
    "comparison",
    "comparison_table",
    "load",
    "save",
    "save_comparison",
    "section",
    "summary",
    "table",
]

DATA, TABLE = "bench.json", "bench.md"
HERE = Path(__file__).parent
SMALL = 100  # figures below it get decimals
HEAD = """# What the suite measured

Made by `make bench` ([how to run and read it](../README.md)); the data are in [bench.json](bench.json). Figures are medians of
alternating rounds on one server in one run with durable commits. The range is from the lowest to the highest round. The last
column shows the guarantees of each line: compare only lines with the same guarantees.
"""


def circumstances(server: Any, rounds: int, versions: dict[str, str]) -> dict[str, Any]:
    """Return the versions, settings and load that a figure depends on."""
    return {
        "postgresql": server.version,
        **server.durable,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "rounds": rounds,
        "peers": versions,
        "commit": _commit(),
        "begun": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _commit() -> str:
    """The commit that is measured; empty in a folder that git does not know, or without git."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def section(
    title: str,
    text: str,
    lines: Iterable[Line],
    targets: Iterable[Target],
    about: dict[str, Any],
    seconds: float,
    error: str = "",
) -> dict[str, Any]:
    """Return one workload as data."""
    return {
        "title": title,
        "text": text,
        "about": {**about, "load_after": round(os.getloadavg()[0], 2), "seconds": round(seconds)},
        "error": error,
        "lines": [{**asdict(line), "rounds": [_rounded(each) for each in line.rounds], "figure": _rounded(line.figure),
                   "more": {name: _rounded(value) for name, value in line.more.items()}} for line in lines],
        "targets": [{**asdict(each), "figure": _rounded(each.figure), "reached": each.reached, "verdict": each.verdict} for each in targets],
    }  # fmt: skip


def comparison(
    comparisons: Iterable[Comparison], about: dict[str, Any], seconds: float, error: str = ""
) -> dict[str, Any]:
    """Return one compared workload as data."""
    return {
        "about": {**about, "load_after": round(os.getloadavg()[0], 2), "seconds": round(seconds)},
        "error": error,
        "figures": [{**asdict(each), "old": [_rounded(figure) for figure in each.old], "new": [_rounded(figure) for figure in each.new],
                     "ratio": _rounded(each.ratio), "interval": [_rounded(end) for end in each.interval or ()],
                     "verdict": each.verdict, "passed": each.passed} for each in comparisons],
    }  # fmt: skip


def load(folder: Path, name: str = DATA) -> dict[str, Any]:
    """Load the sections of earlier runs; empty if there are none."""
    file = folder / name
    return json.loads(file.read_text()) if file.exists() else {}


def save(folder: Path, sections: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DATA).write_text(json.dumps(sections, indent=1) + "\n")
    (folder / TABLE).write_text(table(sections))


def against_file(commit: str) -> str:
    """Return the name of the data file of a comparison with this commit."""
    return f"against-{commit}.json"


def save_comparison(folder: Path, commit: str, sections: dict[str, Any]) -> None:
    """Write the data and the table of a comparison."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / against_file(commit)
    file.write_text(json.dumps(sections, indent=1) + "\n")
    file.with_suffix(".md").write_text(comparison_table(sections) + "\n")


def comparison_table(sections: dict[str, Any]) -> str:
    """Return the compared figures in Markdown."""
    parts = []
    for name, each in sections.items():
        about, before = each["about"], ""
        parts += [f"## {name}: {about['new']} against {about['old']}\n",
                  "| | | old | new | unit | ratio, above 1 is better | 95 % interval | verdict |",
                  "|---|---|---:|---:|---|---:|---:|---|"]  # fmt: skip
        for figure in each["figures"]:
            medians = (shown(statistics.median(figure[side])) if figure[side] else "" for side in ("old", "new"))
            ratio = "" if figure["ratio"] is None else f"{figure['ratio']:.3f}"
            interval = " to ".join(f"{end:.3f}" for end in figure["interval"])
            verdict = figure["verdict"] if figure["verdict"] == "ok" else f"**{figure['verdict']}**"
            cells = [
                "" if figure["case"] == before else figure["case"],
                figure["name"],
                *medians,
                figure["unit"],
                ratio,
                interval,
            ]
            parts.append("| " + " | ".join((*cells, f"{verdict} {_cell(figure['error'])}".strip())) + " |")
            before = figure["case"]
        if each["error"]:
            parts.append(f"\n**Failed**: {each['error']}")
        parts.append(f"\n{about['rounds']} pairs. {_circumstances_line(about)}\n")
    return "\n".join(parts)


def _circumstances_line(about: dict[str, Any]) -> str:
    return (
        f"{about['begun']} UTC, commit {about['commit']}, PostgreSQL {about['postgresql']}, Python {about['python']}, "
        f"{about['cores']} cores, load {about['load_before']} before and {about['load_after']} after, {about['seconds']} s."
    )


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else float(f"{figure:.5g}")


def shown(figure: float | None) -> str:
    """Format a figure: with thousands separators, and with decimals only if it is small.

    >>> shown(21658.4), shown(4.2), shown(0.0123), shown(None)
    ('21,658', '4.20', '0.0123', '')
    """
    if figure is None:
        return ""
    if abs(figure) >= SMALL:
        return f"{figure:,.0f}"
    return f"{figure:.2f}" if abs(figure) >= 1 or figure == 0 else f"{figure:.3g}"


def summary(sections: dict[str, Any]) -> str:
    """Return a table of all figures of "What it must show" with their targets."""
    rows = ["| | figure | target | |", "|---|---:|---:|---|"]
    for each in sections.values():
        for target in each["targets"]:
            wanted = f"{'at most' if target['at_most'] else 'at least'} {shown(target['wanted'])} {target['unit']}"
            verdict = target["verdict"] if target["reached"] else f"**{target['verdict']}**"
            rows.append(f"| {target['claim']} | {shown(target['figure'])} | {wanted} | {verdict} |")
        if each["error"]:
            rows.append(f"| {each['title']} | | | **failed**: {_cell(each['error'])} |")
    return "\n".join(rows)


def table(sections: dict[str, Any]) -> str:
    """Return the whole report in Markdown."""
    parts = [HEAD, "## What it must show\n", summary(sections), ""]
    for name, each in sections.items():
        about = each["about"]
        parts += [f"## {each['title']}\n", each["text"], f"\n![{each['title']}]({name}.svg)\n", *_lines(each["lines"])]
        if each["error"]:
            parts.append(f"\n**Failed**: {each['error']}")
        versions = ", ".join(f"{peer} {version}" for peer, version in about["peers"].items())
        parts.append(f"\n{_circumstances_line(about)} {versions}\n")
    return "\n".join(parts)


def _lines(lines: list[dict[str, Any]]) -> list[str]:
    extra = list(dict.fromkeys(name for line in lines for name in line["more"]))
    columns = ["", "", "figure", "unit", "range", *extra, "what it does for it"]
    rows = ["| " + " | ".join(columns) + " |", "|---|---|---:|---|---:|" + "---:|" * len(extra) + "---|"]
    before = ""
    for line in lines:
        spread = f"{shown(min(line['rounds']))} to {shown(max(line['rounds']))}" if line["rounds"] else ""
        cells = ["" if line["case"] == before else line["case"], line["name"], f"**{shown(line['figure'])}**" if line["rounds"] else "",
                 line["unit"], spread, *(shown(line["more"].get(name)) for name in extra)]  # fmt: skip
        does = f"no figure: {_cell(line['error'])}" if line["error"] else line["does"]
        rows.append("| " + " | ".join((*cells, does)) + " |")
        before = line["case"]
    return rows


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")
