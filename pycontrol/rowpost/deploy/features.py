"""Decide what becomes of features that a server has and the environment does not declare. Performs no I/O.

`settle` takes the plan of an environment and what the server recorded. It returns the plan with all that stays, and
what goes. An object goes only if a deployment of this environment declared its feature earlier, no other environment
declares it, and the feature's tables are empty. All else stays, is deployed like the rest, and is named with the
reason. A schedule goes likewise, unless a handler that may declare it cannot be imported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import is_
from typing import Any

from rowpost.database.contract import CORE, FEATURES_OF_QUEUES, ROLES
from rowpost.deploy.entries import MOVING, DeclaredFeature, Entry, QueueEntry, SagaEntry, ScheduleEntry
from rowpost.deploy.plan import Plan, build_plan
from rowpost.deploy.scripts import ScriptSet
from rowpost.deploy.state import JournalEntry, ServerState

__all__ = ["Kept", "Settled", "deployed_features", "settle"]


def deployed_features(scripts: ScriptSet, state: ServerState) -> frozenset[str]:
    """Return the features of the scripts that ran on a server, without the core, and without those that single queues
    have.
    """
    ran = frozenset(scripts.contract.feature_of(entry.script_name) for entry in state.journal)
    return (ran | ({ROLES} if state.has_roles else set())) - {CORE} - FEATURES_OF_QUEUES


@dataclass(frozen=True)
class Kept:
    """A feature that stays although the environment does not declare it:

    `subject`, the reason, and what to do about it.
    """

    subject: str
    reason: str
    remedy: str


@dataclass(frozen=True)
class Settled:
    """The outcome.

    Attributes:
        plan: what is deployed: the environment's plan with all that stays.
        kept: what stays without being declared.
        dropped: names of the scripts whose objects go.
        forgotten: features that are no longer on record for this environment.
        left: names of scripts whose objects stay until a person drops them; `kept` says why.
        removed: schedules that go.
    """

    plan: Plan
    kept: tuple[Kept, ...] = ()
    dropped: tuple[str, ...] = ()
    forgotten: tuple[DeclaredFeature, ...] = ()
    left: tuple[str, ...] = ()
    removed: tuple[ScheduleEntry, ...] = ()


def settle(plan: Plan, state: ServerState, has_rows: Callable[[str], bool]) -> Settled:
    """Compare what a plan declares with what the server has.

    Args:
        plan: the environment's; one that is not whole only gets the features of the server.
        state: the server's. Registered queues and sagas that the plan does not declare stay.
        has_rows: whether the table that a script made has rows, by the script's name.
    """
    present = deployed_features(plan.scripts, state)
    if not plan.whole:
        return Settled(_completed(plan, list(plan.entries), plan.features | present))
    registered = {entry.title: entry for entry in state.registry}
    here = _Server(plan, state, has_rows)
    for title in [title for title, entry in registered.items() if here.is_removed(entry)]:
        del registered[title]
    staying = {
        feature for feature in sorted(present - plan.features - {ROLES})
        if here.judge(DeclaredFeature(feature), f"the feature {feature}", f"add {feature} to `features:`")
    }  # fmt: skip
    if ROLES in present - plan.features and here.judge(
        DeclaredFeature(ROLES), "the rights of rowpost's roles", "write `roles: cluster`", "write `roles: none`"
    ):
        staying.add(ROLES)
    entries = [here.judge_option("delayed", entry, registered.get(entry.title)) for entry in plan.entries]
    entries = [here.judge_option("lease", entry, registered.get(entry.title)) for entry in entries]
    titles = {entry.title for entry in entries}
    entries += [entry for title, entry in registered.items() if title not in titles]
    for entry in entries:
        here.keep_second_correlation(entry)
    entries = [here.judge_option("wake_up", entry, registered.get(entry.title)) for entry in entries]
    whole = _completed(plan, entries, plan.features | staying)
    return Settled(
        whole, tuple(here.kept), tuple(here.dropped), tuple(here.forgotten), tuple(here.left), tuple(here.removed)
    )


def _completed(plan: Plan, entries: list[Entry], features: frozenset[str]) -> Plan:
    """Return the plan with these entries and features; the plan itself if it has them already."""
    if features == plan.features and len(entries) == len(plan.entries) and all(map(is_, entries, plan.entries)):
        return plan
    return build_plan(plan.environment, plan.scripts, entries, plan.whole, features)


class _Server:
    """What the server has, and what was decided about it so far."""

    def __init__(self, plan: Plan, state: ServerState, has_rows: Callable[[str], bool]) -> None:
        self._plan, self._state, self._has_rows = plan, state, has_rows
        self._uncertain = dict(plan.uncertain)
        self._titles = {entry.title for entry in plan.entries}
        self._scripts: dict[DeclaredFeature, list[JournalEntry]] = defaultdict(list)
        for each in state.journal:
            feature = plan.scripts.contract.feature_of(each.script_name)
            for name in {DeclaredFeature(feature), DeclaredFeature(feature, each.key)}:
                self._scripts[name].append(each)
        self.kept: list[Kept] = []
        self.dropped: list[str] = []
        self.forgotten: list[DeclaredFeature] = []
        self.left: list[str] = []
        self.removed: list[ScheduleEntry] = []

    def judge_option(self, option: str, wanted: Entry, registered: Entry | None) -> Entry:
        """Decide about what a queue is declared without: `delayed`, its delayed table, `lease`, its table of leases, or
        `wake_up`, its trigger.

        Return the entry as it is deployed.
        """
        if (
            not isinstance(wanted, QueueEntry)
            or not isinstance(registered, QueueEntry)
            or getattr(wanted, option)
            or not getattr(registered, option)
        ):
            return wanted
        noun, line = {
            "delayed": ("delayed table", f"write `delayed: true` at the queue {wanted.name}"),
            "lease": ("table of leases", f"write `lease: true` at the queue {wanted.name}"),
            "wake_up": ("trigger", "write `supervisor: {wake_up: everybody}`"),
        }[option]
        stays: dict[str, Any] = {option: True}
        feature, subject = DeclaredFeature(option, wanted.key), f"the {noun} of the queue {wanted.name}"
        return replace(wanted, **stays) if self.judge(feature, subject, line) else wanted

    def is_removed(self, entry: Entry) -> bool:
        """Decide about a registered schedule that the plan does not declare, and return whether it goes. Any other
        entry stays.
        """
        if not isinstance(entry, ScheduleEntry) or entry.title in self._titles:
            return False
        line = "declare it in code or below `schedules:`"
        goes = not self.judge(entry.declared, f"the schedule {entry.name}", line, uncertain="schedules")
        self.removed += [entry] if goes else []
        return goes

    def keep_second_correlation(self, entry: Entry) -> None:
        """Leave what a saga needed while it moved to another correlation: workers that still move it may run until they
        are replaced.
        """
        if not isinstance(entry, SagaEntry) or entry.transitional_name is not None:
            return
        of_saga = [each.script_name for each in self._state.journal if each.key == entry.key]
        left = [name for name in of_saga if name.partition(":")[0].endswith(MOVING)]
        if left:
            self.left += left
            self._keep(
                f"the second correlation of the saga {entry.name}",
                "workers that still move the saga may run",
                f"When all are replaced: rowpost sagas drop-correlation {entry.name} PROPERTY, with the property by "
                "which nothing is found.",
            )

    def judge(
        self,
        feature: DeclaredFeature,
        subject: str,
        line: str,
        undone: str = "remove the line again",
        *,
        uncertain: str = "",
    ) -> bool:
        """Decide about a feature that the plan does not declare. Return whether it stays.

        Args:
            feature: the feature.
            subject: what it is called.
            line: how an environment declares it.
            undone: how an environment stops to do so.
            uncertain: the feature that says whether a handler may declare it, if it is not the same.
        """
        mine = (self._plan.environment, feature) in self._state.declared
        others = sorted(
            name for name, each in self._state.declared if each == feature and name != self._plan.environment
        )
        scripts = self._scripts[feature]
        filled = [
            each
            for each in scripts
            if each.object_kind == "table" and mine and not others and self._is_filled(each.script_name)
        ]
        keep = f"To keep it, {line} in the environment's file and run rowpost apply."
        if needed_by := self._uncertain.get(uncertain or feature.text):
            self._keep(subject, f"{needed_by} cannot be imported here and may need it", keep)
        elif others:
            self._keep(subject, f"the environment {' and '.join(others)} declares it", "Nothing is to be done.")
            self.forgotten += [feature] if mine else []
        elif not mine:
            remedy = f"{keep} To drop it, do that, then {undone} and run rowpost apply once more."
            self._keep(subject, "no apply of this environment is on record that declared it", remedy)
        elif filled:
            names = ", ".join(each.script_name for each in filled)
            remedy = f"{keep} To drop it, move or delete the rows, then run rowpost apply again."
            self._keep(subject, f"its table has rows ({names})", remedy)
        else:
            self.dropped += [each.script_name for each in scripts]
            self.forgotten.append(feature)
            return False
        return True

    def _is_filled(self, script_name: str) -> bool:
        """Whether a table has rows that stay."""
        schedules = sum(isinstance(each, ScheduleEntry) for each in self._state.registry)
        emptied = script_name.endswith("_schedule.sql") and schedules == len(self.removed)
        return not emptied and self._has_rows(script_name)

    def _keep(self, subject: str, reason: str, remedy: str) -> None:
        self.kept.append(Kept(subject, reason, remedy))
