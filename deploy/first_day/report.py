"""The report of a run: report.md for people, report.json for programs. Pure functions but for `write`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from deploy.first_day.verdicts import FAILED, NOT_POSSIBLE, PASSED, PROVED_NOTHING, Step, Verdict

__all__ = ["markdown", "write"]

#: the facts on the first screen, in this order; all others are in the section of the preflight
SHOWN = (
    "server", "build", "edition", "level and update", "compatibility level", "RCSI", "delayed durability", "accelerated recovery", "optimized locking", "trace flags",
    "database collation", "processors", "memory in MB", "tempdb data files", "rowpost", "deployed by",
)  # fmt: skip
SEND_BACK = "Send back the whole folder of this report. It holds no password. It holds no name of the server unless an error names it: read the reasons below."


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _short(text: str, length: int = 160) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def markdown(facts: Mapping[str, str], verdicts: Sequence[Verdict], steps: Sequence[Step], at: datetime) -> str:
    """Return the report: one screen with facts and verdicts, and then what each step saw."""
    numbers = ", ".join(
        f"{sum(each.state == state for each in verdicts)} {state}"
        for state in (PASSED, FAILED, PROVED_NOTHING, NOT_POSSIBLE)
    )
    done = {verdict.name for verdict in verdicts}
    lines = [
        "# First day on SQL Server",
        "",
        f"{at:%Y-%m-%d %H:%M} UTC. **{numbers}.** {SEND_BACK}",
        "",
        "| | |",
        "|---|---|",
    ]
    lines += [f"| {name} | {_cell(_short(facts[name]))} |" for name in SHOWN if facts.get(name)]
    lines += ["", "| Step | Verdict | Seconds | Reason |", "|---|---|---:|---|"]
    lines += [
        f"| {v.label}: {v.title} | {_mark(v.state)} | {v.seconds:.1f} | {_cell(_short(v.reason))} |" for v in verdicts
    ]
    lines += [f"| {step.name}: {step.title} | not run | | |" for step in steps if step.name not in done]
    for verdict in verdicts:
        lines += ["", f"## {verdict.label}: {verdict.state}", ""]
        lines += [verdict.reason, ""] if verdict.reason else []
        lines += [f"- {' '.join(line.split())}" for line in verdict.seen]
    return "\n".join(lines) + "\n"


def _mark(state: str) -> str:
    return state if state == PASSED else f"**{state}**"


def write(
    folder: Path, facts: Mapping[str, str], verdicts: Sequence[Verdict], steps: Sequence[Step], at: datetime
) -> None:
    """Write both files of the report."""
    (folder / "report.md").write_text(markdown(facts, verdicts, steps, at), encoding="utf-8")
    data = {"at": f"{at:%Y-%m-%dT%H:%M:%SZ}", "facts": dict(facts), "steps": [asdict(verdict) for verdict in verdicts]}
    (folder / "report.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
