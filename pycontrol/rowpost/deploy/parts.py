"""Divide a deployment into parts, each of which commits in one transaction. Performs no I/O.

By default the whole deployment is one part. By queue, the first part has the objects that all queues share. It also
records the features that the environment declares and the release. Then each queue and each saga is a part: its entry
in the registry, tables, procedures and rights. What goes because it is no longer declared goes with its queue, and what
the queues shared goes last. A declaration is forgotten in the transaction that drops its last object, so that an
interrupted deployment still finds it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rowpost.deploy.diff import PlanChange, PlanDiff
from rowpost.deploy.entries import SCHEDULE, DeclaredFeature, QueueEntry, ScheduleEntry
from rowpost.deploy.state import JournalEntry

__all__ = ["DeploymentPart", "outcome", "parts_by_queue", "whole_part"]

SHARED = "shared objects"
#: so many parts are named in a message
NAMED = 5


@dataclass(frozen=True)
class DeploymentPart:
    """What commits together.

    Attributes:
        title: `shared objects`, `queue <name>`, `saga <name>`, or what the part is for.
        environment: for which the features are recorded.
        changes: items of the plan that run, in order.
        removed: schedules that are removed before anything else.
        dropped: scripts whose objects are dropped before the changes run.
        declared: features that are new on record for the environment.
        forgotten: features that are no longer on record for it.
    """

    title: str
    environment: str
    changes: tuple[PlanChange, ...] = ()
    dropped: tuple[JournalEntry, ...] = ()
    declared: tuple[DeclaredFeature, ...] = ()
    forgotten: tuple[DeclaredFeature, ...] = ()
    removed: tuple[ScheduleEntry, ...] = ()


def whole_part(diff: PlanDiff, declared: Sequence[DeclaredFeature] = ()) -> DeploymentPart:
    """Return a deployment as one part. `declared` are the features that are not on record yet."""
    return DeploymentPart(
        "everything", diff.plan.environment, diff.to_run, diff.dropped, tuple(declared), diff.forgotten, diff.removed
    )


def parts_by_queue(diff: PlanDiff, declared: Sequence[DeclaredFeature] = ()) -> tuple[DeploymentPart, ...]:
    """Return a deployment as parts, in the order in which they run. `declared` as for `whole_part`."""
    environment = diff.plan.environment
    owned = defaultdict[str | None, list[PlanChange]](list)
    for change in diff.to_run:
        owned[change.owner].append(change)
    dropped, forgotten = list(diff.dropped), list(diff.forgotten)
    parts = []
    for entry in diff.plan.entries:
        key = entry.key if isinstance(entry, QueueEntry) else None
        going = [each for each in dropped if each.key == key and not each.is_saga_s]
        recorded, removed = (
            tuple(each for each in named if each.queue_key == key and each.name != SCHEDULE)
            for named in (declared, forgotten)
        )
        parts.append(
            DeploymentPart(entry.title, environment, tuple(owned[entry.title]), tuple(going), recorded, removed)
        )
        dropped = [each for each in dropped if each not in going]
        forgotten = [each for each in forgotten if each not in removed]
    of_queues = {each for part in parts for each in part.declared}
    shared = DeploymentPart(
        SHARED, environment, tuple(owned[None]), declared=tuple(each for each in declared if each not in of_queues)
    )
    last = DeploymentPart(
        "features that are no longer declared",
        environment,
        dropped=tuple(dropped),
        forgotten=tuple(forgotten),
        removed=diff.removed,
    )
    return (shared, *parts, *([last] if dropped or forgotten or diff.removed else []))


def outcome(parts: Sequence[DeploymentPart], done: int) -> str:
    """Say what is committed, what is left and how to go on, if the part after `done` parts fails."""
    return (
        f"Stopped at: {parts[done].title}, whose transaction is all or nothing. Committed before: "
        f"{_listed(parts[:done])}. Left: {_listed(parts[done:])}. To go on, remove the cause and run rowpost apply "
        "--by-queue again."
    )


def _listed(parts: Sequence[DeploymentPart]) -> str:
    names = [part.title for part in parts[:NAMED]]
    more = len(parts) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
