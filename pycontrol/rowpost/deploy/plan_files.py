"""A plan as files that a person runs one after the other: the shared objects, then each queue, saga and table.

Each file is one transaction, with the checks and guards of the whole script. Together they do what `apply --by-queue`
does on an empty database. A file whose transaction failed, and the files after it, are run again; one that has run may
run again too. The files of queues refuse to run before the file of the shared objects. `manifest.json` lists all.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rowpost.deploy.by_hand import HOW_TO_RUN, SCHEMA_IS, refuse_unless, spell_script
from rowpost.deploy.diff import compare
from rowpost.deploy.parts import DeploymentPart, parts_by_queue
from rowpost.deploy.plan import Plan, script_header, sections_of
from rowpost.deploy.scripts import hash_text
from rowpost.deploy.state import ServerState
from rowpost.errors import DeployError

__all__ = ["PlanFile", "plan_files", "write_plan_files"]

LONGEST = 80  # characters of a title in the name of a file


@dataclass(frozen=True)
class PlanFile:
    """One file: its name, which starts with its place in the order, what it is for, and its text."""

    name: str
    purpose: str
    text: str


def plan_files(plan: Plan) -> tuple[PlanFile, ...]:
    """Return the files of a plan in the order in which they run."""
    parts = list(enumerate(parts_by_queue(compare(plan, ServerState()), plan.declared), 1))
    width = max(3, len(str(len(parts))))
    titles = (re.sub(r"[^\w.-]+", "-", part.title, flags=re.ASCII)[:LONGEST].strip("-.") for _, part in parts)
    names = [f"{number:0{width}}-{title}.sql" for number, title in enumerate(titles, 1)]
    return tuple(PlanFile(names[number - 1], part.title, _text(plan, part, number, names)) for number, part in parts)


def write_plan_files(plan: Plan, folder: Path) -> dict[str, Any]:
    """Write the files of a plan and their manifest into a folder, which must be empty, and return the manifest.

    Raises:
        DeployError: the folder holds something: a file of an earlier plan could be run by mistake.
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise DeployError(f"The folder {folder} is not empty: name a new one, so that no file of another plan is run.")
    files = plan_files(plan)
    manifest = {
        "environment": plan.environment,
        "engine": plan.engine,
        "database": plan.database or None,
        "rowpost": plan.tool_version,
        "schema": plan.schema_version,
        "plan": plan.hash,
        "run": HOW_TO_RUN[plan.engine],
        "files": [
            {"order": number, "file": each.name, "purpose": each.purpose, "sha256": hash_text(each.text)}
            for number, each in enumerate(files, 1)
        ],
    }
    for each in files:
        (folder / each.name).write_text(each.text, encoding="utf-8", newline="\n")
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    (folder / "manifest.json").write_text(text, encoding="utf-8", newline="\n")
    return manifest


def _text(plan: Plan, part: DeploymentPart, number: int, names: list[str]) -> str:
    before = "It runs first." if number == 1 else f"It runs after {names[number - 2]}."
    about = (f"Plan {plan.hash}, file {number} of {len(names)}: {' '.join(part.title.split())}. {before}",)
    items = [change.item for change in part.changes]
    check = [] if number == 1 else [(f"{names[0]} has run", _after_shared(plan, names[0]))]
    sections = (*check, *sections_of(plan, items, part.declared, version=number == 1))
    return script_header(plan, about) + spell_script(plan.scripts, sections, plan.database)


def _after_shared(plan: Plan, first: str) -> str:
    """Spell the check that the objects which all queues share are those of this plan."""
    rights = [step for step in plan.steps if step.owner is None and step.kind == "everytime"]
    exists = {"sqlserver": "OBJECT_ID(N'rowpost.journal', N'U')", "postgresql": "to_regclass('rowpost.journal')"}
    conditions = (
        f"{exists[plan.engine]} IS NOT NULL",
        SCHEMA_IS.format(plan.schema_version),
        *(
            f"EXISTS (SELECT 1 FROM rowpost.journal AS j WHERE j.script_hash = '{each.hash}')"  # noqa: S608 -- a hash
            for each in rights
        ),
    )
    said = (
        f"The objects that all queues share are not those of this plan. Run {first} first; if the database has a newer "
        "rowpost, print the files with that release."
    )
    return refuse_unless(plan.engine, conditions, said)
