"""The data file and the table. Both are written anew after each workload, so that a run that ends early leaves what it has.

bench.json holds one section for each workload, with the circumstances of its own run: a partial run replaces only what
it measured. bench.md is made from it, and nothing else.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.suite.figures import Line, Target

__all__ = ["DATA", "TABLE", "circumstances", "load", "save", "section", "summary", "table"]

DATA, TABLE = "bench.json", "bench.md"
HERE = Path(__file__).parent
SMALL = 100  # figures below it get decimals
HEAD = """# What the suite measured

Made by `make bench` ([how to run and read it](../README.md)); the data are in [bench.json](bench.json). Figures are medians of
alternating rounds on one server in one run, durable commits on; the range is from the worst round to the best. What each
line does for its figure stands beside it: compare only what promises the same.
"""


def circumstances(server: Any, rounds: int, versions: dict[str, str]) -> dict[str, Any]:
    """What a figure depends on, as far as the machine tells."""
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
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def section(
    title: str, text: str, lines: Iterable[Line], targets: Iterable[Target], about: dict[str, Any], seconds: float, error: str = ""
) -> dict[str, Any]:
    """One workload as data."""
    return {
        "title": title,
        "text": text,
        "about": {**about, "load_after": round(os.getloadavg()[0], 2), "seconds": round(seconds)},
        "error": error,
        "lines": [{**asdict(line), "rounds": [_rounded(each) for each in line.rounds], "figure": _rounded(line.figure),
                   "more": {name: _rounded(value) for name, value in line.more.items()}} for line in lines],
        "targets": [{**asdict(each), "figure": _rounded(each.figure), "reached": each.reached, "verdict": each.verdict} for each in targets],
    }  # fmt: skip


def load(folder: Path) -> dict[str, Any]:
    """What earlier runs left; nothing where there is none."""
    file = folder / DATA
    return json.loads(file.read_text()) if file.exists() else {}


def save(folder: Path, sections: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DATA).write_text(json.dumps(sections, indent=1) + "\n")
    (folder / TABLE).write_text(table(sections))


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else float(f"{figure:.5g}")


def shown(figure: float | None) -> str:
    """For people: thousands parted, decimals only where they say something.

    >>> shown(21658.4), shown(4.2), shown(0.0123), shown(None)
    ('21,658', '4.20', '0.0123', '')
    """
    if figure is None:
        return ""
    if abs(figure) >= SMALL:
        return f"{figure:,.0f}"
    return f"{figure:.2f}" if abs(figure) >= 1 or figure == 0 else f"{figure:.3g}"


def summary(sections: dict[str, Any]) -> str:
    """Every figure of "What it must show" beside its target."""
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
    """The whole report in Markdown."""
    parts = [HEAD, "## What it must show\n", summary(sections), ""]
    for name, each in sections.items():
        about = each["about"]
        parts += [f"## {each['title']}\n", each["text"], f"\n![{each['title']}]({name}.svg)\n", *_lines(each["lines"])]
        if each["error"]:
            parts.append(f"\n**Failed**: {each['error']}")
        versions = ", ".join(f"{peer} {version}" for peer, version in about["peers"].items())
        parts.append(
            f"\n{about['begun']} UTC, commit {about['commit']}, PostgreSQL {about['postgresql']}, Python {about['python']}, "
            f"{about['cores']} cores, load {about['load_before']} before and {about['load_after']} after, {about['seconds']} s. {versions}\n"
        )
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
