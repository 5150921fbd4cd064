"""What on a server is not as the plan says: by journal, by fingerprint, by the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rowpost.database.connection import Connection
from rowpost.deploy.apply import compare_with
from rowpost.deploy.deployment import adapted
from rowpost.deploy.diff import SERIAL_KEY, PlanChange, PlanDiff
from rowpost.deploy.entries import ScheduleEntry
from rowpost.deploy.plan import Plan
from rowpost.deploy.sagas import saga_findings
from rowpost.deploy.state import JournalEntry, read_state
from rowpost.deploy.steps import ScriptStep
from rowpost.errors import SchemaMissing

__all__ = ["Deviation", "verify"]

APPLY = "rowpost apply"
#: findings of check_queue about a queue's health, which comes and goes, and not about its form
HEALTH = {"bloated", "dead_rows", "transaction_open"}
#: findings about tables as NServiceBus's installers make them: true, with a remedy, and no difference from the plan
REMARKS = {"lock_escalation", "row_version_32_bit", "recoverable_missing"}
#: of these, if another system made the table, because a deployment adds nothing to it
REMARKS_ELSEWHERE = {"expires_index_missing", "settings_missing"}


@dataclass(frozen=True)
class Deviation:
    """One thing that is not as planned, and what mends it.

    `kind` is schema_missing, schema_newer, script_missing, script_edited, not_applied, queue_changed,
    schedule_changed, procedure_changed, trigger_changed, table_altered, object_gone, unmanaged_object, not_declared, or
    a finding of check_queue or check_sagas. A remark is worth to know, but no difference from the plan.
    """

    kind: str
    subject: str
    detail: str
    remedy: str
    remark: bool = False


def verify(database: Connection, plan: Plan) -> list[Deviation]:
    """List what on this server differs from the plan, and remarks.

    Changes nothing. The list is empty if all is as planned.
    """
    plan = adapted(database, plan)
    try:
        state = read_state(database)
    except SchemaMissing:
        return [Deviation("schema_missing", "rowpost", "rowpost is not deployed in this database.", APPLY)]
    if state.schema_version > plan.schema_version:
        detail = (
            f"The database has schema {state.schema_version}, deployed by rowpost {state.tool_version}; this rowpost "
            f"brings {plan.schema_version}."
        )
        return [Deviation("schema_newer", "rowpost", detail, f"install rowpost {state.tool_version} or newer")]
    diff = compare_with(database, plan, state)
    findings = [finding for change in diff.changes for finding in _of_change(change)]
    findings += [
        Deviation(
            "script_missing",
            entry.script_name,
            f"{entry.script_name} ran here, and this rowpost does not bring it.",
            "restore the file, or forget the queue it belonged to",
        )
        for entry in diff.unknown
    ]
    detail = "The environment no longer declares it: rowpost plan shows what goes with it."
    findings += [
        Deviation("not_declared", entry.object_name or entry.script_name, detail, APPLY) for entry in diff.dropped
    ]
    findings += [Deviation("not_declared", entry.title, detail, APPLY) for entry in diff.removed]
    findings += [
        Deviation(
            "unmanaged_object",
            name,
            f"No script of rowpost made the {kind} {name}.",
            f"move it out of the schema rowpost, or: DROP {kind.upper()} {name}",
        )
        for kind, name in database.call("list_unmanaged_objects")
    ]
    return findings + list(_of_queues(database, diff))


def _of_change(change: PlanChange) -> Iterator[Deviation]:
    if not isinstance(change.item, ScriptStep):
        if change.state == "added":
            yield Deviation("not_applied", change.name, "It is declared and not registered.", APPLY)
        elif change.state == "changed":
            kind = "schedule_changed" if isinstance(change.item, ScheduleEntry) else "queue_changed"
            yield Deviation(kind, change.name, "The registry has it with other options.", APPLY)
        return
    name, entry, subject = change.name, change.entry, change.item.object_name or change.name
    if change.state == "edited":
        detail = f"The one-time script {name} was edited after it ran here."
        yield Deviation("script_edited", name, detail, "restore it and put the change into a new script")
    elif change.state == "added" or (change.state == "everytime" and entry is None):
        yield Deviation("not_applied", name, f"{name} has not run here yet.", APPLY)
    elif change.state == "changed" or (change.state == "everytime" and entry and entry.script_hash != change.item.hash):
        yield Deviation("not_applied", name, f"{name} ran here with another text.", APPLY)
    elif change.state == "drifted" and entry and entry.living_fingerprint is None:
        yield Deviation("object_gone", subject, f"The {change.item.object_kind} that {name} made is gone.", APPLY)
    elif change.state == "drifted" and change.item.object_kind == "trigger":
        yield Deviation(
            "trigger_changed", subject, f"The trigger that {name} made was changed or disabled by hand.", APPLY
        )
    elif change.state == "drifted":
        yield Deviation(
            "procedure_changed", subject, "The procedure was changed by hand, or does not fit its table.", APPLY
        )
    elif change.state == "altered" and entry:
        yield from _of_columns(subject, entry)


def _of_columns(table: str, entry: JournalEntry) -> Iterator[Deviation]:
    """Compare the fingerprints of a table, which have one line per column: its name, then what it is."""
    recorded, living = (
        {line.partition(" ")[0]: line.partition(" ")[2] for line in (text or "").split("\n") if line}
        for text in (entry.recorded_fingerprint, entry.living_fingerprint)
    )
    for column in sorted({*recorded, *living}):
        before, now = recorded.get(column), living.get(column)
        if before == now:
            continue
        if now is None:
            detail = f"The column {column} ({before}) is gone."
        elif before is None:
            detail = f"The column {column} ({now}) was added by hand."
        else:
            detail = f"The column {column} was {before} and is {now}."
        yield Deviation(
            "table_altered", table, detail, "undo it by hand: rowpost does not touch columns that hold data"
        )


def _of_queues(database: Connection, diff: PlanDiff) -> Iterator[Deviation]:
    """Yield findings of check_queue and check_sagas on form, without objects that the journal comparison names."""
    gone = {
        change.item.owner
        for change in diff.changes
        if isinstance(change.item, ScriptStep)
        and change.item.object_kind == "table"
        and change.state in ("added", "drifted")
    }
    elsewhere = {queue.title for queue in diff.plan.queues if queue.kind == "adopted"}
    elsewhere |= {
        str(change.owner) for change in diff.changes
        if change.entry and SERIAL_KEY in (change.entry.recorded_fingerprint or "")
    }  # fmt: skip
    found = [(f"queue {name}", *rest) for name, *rest in database.call("check_queue")]
    found += [(f"saga {name}", *rest) for name, *rest in saga_findings(database)]
    for subject, kind, detail, remedy in found:
        known = kind in ("procedure_missing", "recoverable_changed") or (kind == "table_missing" and subject in gone)
        if not known and kind not in HEALTH:
            remark = kind in REMARKS or (kind in REMARKS_ELSEWHERE and subject in elsewhere)
            yield Deviation(kind, subject, detail, remedy, remark)
