"""What a deployment means, for the one who has to agree to it: counts, locks, and the difference of every text.

review(difference(database, plan), read_definition(database))      against what lives in the server
compare_releases(plan(settings, old_folder), plan(settings))       against a saved release, without a connection
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from rowpost.database.connection import Connection
from rowpost.database.contract import ROLES
from rowpost.deploy.contract_sql import drop_object
from rowpost.deploy.diff import PlanChange, PlanDiff
from rowpost.deploy.plan import Plan, count_by_feature
from rowpost.deploy.sql_text import split_batches, tokens
from rowpost.deploy.steps import ScriptStep
from rowpost.errors import SchemaMissing

__all__ = ["Item", "Review", "compare_releases", "read_definition", "review"]

#: reads the living text of an object by its name; None where it cannot be read
ReadDefinition = Callable[[str], str | None]

#: what a statement locks until the deployment commits: pattern, lock, and whether senders and receivers wait for it
LOCKS: dict[str, tuple[tuple[str, str, bool], ...]] = {
    "sqlserver": (
        (r"\bCREATE\s+(?:OR\s+ALTER\s+)?(?:PROCEDURE|FUNCTION)\b",
         "Sch-M on each procedure that changes: calls of it wait until the commit", True),
        (r"\bALTER\s+TABLE\b", "Sch-M on the table while it is altered, if something is missing there", True),
        (r"\bCREATE\s+(?:CLUSTERED|NONCLUSTERED|UNIQUE|INDEX)\b",
         "S on the table while an index is made, if it is missing", True),
    ),
    "postgresql": (
        (r"\bCREATE\s+OR\s+REPLACE\s+FUNCTION\b",
         "the function's row in the catalog: running and new calls take the old text until the commit", False),
        (r"\bALTER\s+TABLE\b",
         "ACCESS EXCLUSIVE on the table while it is altered, if a column that is declared is missing there", True),
        (r"\bCREATE\s+(?:UNIQUE\s+)?INDEX\b", "SHARE on the table while an index is made, if it is missing", True),
        (r"\bCREATE\s+OR\s+REPLACE\s+TRIGGER\b", "SHARE ROW EXCLUSIVE on the table while its trigger is made", True),
        (r"\bDROP\s+FUNCTION\b.*\bCASCADE\b", "ACCESS EXCLUSIVE on the table while its trigger is dropped", True),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Item:
    """One object: how it stands, its old and new hash, the difference of its texts where both are known, and what it is
    for.
    """

    name: str
    state: str
    old_hash: str | None
    new_hash: str | None
    diff: str = ""
    feature: str = ""
    purpose: str = ""


@dataclass(frozen=True)
class Review:
    """All of it. `locks` are held until the deployment commits; `pauses` whether senders and receivers wait for one.

    `features` are those of the items, each with the number of items and what it is for.
    """

    items: tuple[Item, ...]
    locks: tuple[str, ...]
    pauses: bool
    features: tuple[tuple[str, int, str], ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How many items are in each state."""
        return dict(Counter(item.state for item in self.items))

    @property
    def summary(self) -> list[str]:
        """What stands on top, a line each."""
        names = ("added", "changed", "drifted", "dropped", "undeclared", "revoked", "altered", "edited")
        words = {"undeclared": "no longer declared"}
        counted = [f"{self.counts[name]} {words.get(name, name)}" for name in names if name in self.counts]
        if not counted:
            unknown = self.counts.get("unknown", 0)
            return [
                f"Nothing changes. Not part of this release, and left as they are: {unknown}."
                if unknown
                else "Nothing changes."
            ]
        workers = (
            "Workers may keep running; some of their calls wait until the commit."
            if self.pauses
            else "Workers may keep running and wait for nothing."
        )
        features = [f"{name}: {count} objects, to {purpose}." for name, count, purpose in self.features]
        return [", ".join(counted) + ".", *features, *(f"Locks: {lock}." for lock in self.locks), workers]


def review(diff: PlanDiff, engine: str, definition: ReadDefinition) -> Review:
    """Return what apply would change, with the difference against what lives in the server."""
    changes = [change for change in diff.changes if change.state not in ("unchanged", "everytime")]
    items = [_item(change, engine, definition) for change in changes]
    feature_of = diff.plan.scripts.contract.feature_of
    gone = [
        Item(
            entry.script_name,
            "revoked" if feature_of(entry.script_name) == ROLES else "undeclared",
            entry.script_hash,
            None,
        )
        for entry in diff.dropped
    ]
    gone += [Item(entry.title, "undeclared", None, None) for entry in diff.removed]
    gone += [Item(entry.script_name, "unknown", entry.script_hash, None) for entry in diff.unknown]
    runs = [(change, change.item) for change in changes if change.runs and isinstance(change.item, ScriptStep)]
    there = {change.owner for change in diff.changes if change.entry is not None}
    existing = [
        step.text
        for change, step in runs
        if change.entry is not None or (step.object_kind == "trigger" and step.owner in there)
    ]
    existing += [
        drop_object(engine, str(entry.object_name), "trigger")
        for entry in diff.dropped
        if entry.object_kind == "trigger"
    ]
    return _reviewed([*items, *gone], existing, diff.plan)


def _reviewed(found: Iterable[Item], texts: Collection[str], plan: Plan) -> Review:
    """Return the review of items: what each object is for, and the locks that the texts of existing objects take."""
    locks = [
        (lock, waits)
        for pattern, lock, waits in LOCKS[plan.engine]
        if any(re.search(pattern, text, re.IGNORECASE) for text in texts)
    ]
    contract = plan.scripts.contract
    items = tuple(
        replace(item, feature=contract.feature_of(item.name), purpose=contract.purpose_of(item.name))
        if ".sql" in item.name
        else item
        for item in found
    )
    features = count_by_feature(plan, (item.name for item in items if ".sql" in item.name))
    return Review(items, tuple(lock for lock, _ in locks), any(waits for _, waits in locks), tuple(features))


def compare_releases(old: Plan, new: Plan) -> Review:
    """Return what a release changes against an earlier one, both rendered for one environment; needs no connection."""
    before = {step.script_name: step for step in old.steps}
    after = {step.script_name: step for step in new.steps}
    items, texts = [], []
    for name, step in after.items():
        earlier = before.get(name)
        if earlier is None:
            items.append(Item(name, "added", None, step.hash))
        elif earlier.hash != step.hash:
            state = "edited" if step.kind == "once" else "changed"
            items.append(Item(name, state, earlier.hash, step.hash, _unified(earlier.text, step.text, name)))
            texts.append(step.text)
    items += [Item(name, "dropped", step.hash, None) for name, step in before.items() if name not in after]
    return _reviewed(items, texts, new)


def read_definition(database: Connection) -> ReadDefinition:
    """Read texts from a server."""

    def read(object_name: str) -> str | None:
        try:
            rows = database.call("get_definition", object_name=object_name)
        except SchemaMissing:  # an older schema, which has no such procedure yet
            return None
        return rows[0].definition if rows else None

    return read


def _item(change: PlanChange, engine: str, definition: ReadDefinition) -> Item:
    old = change.entry.script_hash if change.entry else None
    if not isinstance(change.item, ScriptStep):
        return Item(change.name, change.state, None, None)
    step, text = change.item, None
    if step.object_kind == "procedure" and change.state in ("changed", "drifted") and step.object_name:
        text = definition(step.object_name)
    diff = "" if text is None else _unified(_comparable(text, engine), _comparable(step.text, engine), change.name)
    return Item(change.name, change.state, old, step.hash, diff)


def _comparable(text: str, engine: str) -> str:
    """Return the part of a procedure's text that a server gives back as it was written."""
    if engine == "postgresql":
        body = next((token for token in tokens(text, engine) if token.kind == "body"), None)
        return re.sub(r"^\$\w*\$\n?|\n?\$\w*\$$", "", text[body.start : body.end]) if body else text
    batches = [batch.text for batch in split_batches(text, engine)]
    created = next((each for each in batches if re.search(r"\bCREATE\b", each, re.IGNORECASE)), text)
    return re.sub(
        r"(?<=\bCREATE)\s+(?:OR\s+ALTER\s+)?(?=PROC|FUNC)", " ", created, count=1, flags=re.IGNORECASE
    ).strip()


def _unified(old: str, new: str, name: str) -> str:
    lines = difflib.unified_diff(
        old.strip().splitlines(), new.strip().splitlines(), f"server/{name}", f"plan/{name}", lineterm=""
    )
    return "\n".join(lines)
