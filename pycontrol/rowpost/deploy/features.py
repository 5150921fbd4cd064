"""Decide what becomes of features that a server has and the environment does not declare. Performs no I/O.

`settle` takes the plan of an environment and what the server recorded. It returns the plan with all that stays, and what goes.
An object goes only if a deployment of this environment declared its feature earlier, no other environment declares it, and the
feature's tables are empty. All else stays, is deployed like the rest, and is named with the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rowpost.deploy.plan import Entry, Plan, build_plan, deployed_features
from rowpost.deploy.queue_entry import QueueEntry, delayed_feature, wake_up_feature
from rowpost.deploy.saga_entry import MOVING, SagaEntry

__all__ = ["Declared", "Kept", "Settled", "settle"]

#: (environment, feature) as list_features returns them
Declared = tuple[str, str]


class _Recorded(Protocol):
    @property
    def script_name(self) -> str: ...

    @property
    def object_kind(self) -> str | None: ...


@dataclass(frozen=True)
class Kept:
    """A feature that stays although the environment does not declare it: `subject`, the reason, and what to do about it."""

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
    """

    plan: Plan
    kept: tuple[Kept, ...] = ()
    dropped: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def settle(
    plan: Plan,
    journal: Sequence[_Recorded],
    registry: Iterable[Entry],
    declared: Collection[Declared],
    has_rows: Callable[[str], bool],
) -> Settled:
    """Compare what a plan declares with what the server has.

    Args:
        plan: the environment's; one that is not whole stays as it is.
        journal: what ran on the server.
        registry: the registered queues and sagas. Those that the plan does not declare stay.
        declared: what environments declared, on record.
        has_rows: whether the table that a script made has rows, by the script's name.
    """
    if not plan.whole:
        return Settled(plan)
    registered = {entry.title: entry for entry in registry}
    here = _Server(plan, journal, declared, has_rows)
    present = deployed_features(plan.scripts, (entry.script_name for entry in journal))
    staying = {
        feature for feature in sorted(present - plan.features)
        if here.judge(feature, f"the feature {feature}", f"add {feature} to `features:`")
    }  # fmt: skip
    entries = [here.judge_delayed(entry, registered.get(entry.title)) for entry in plan.entries]
    titles = {entry.title for entry in entries}
    entries += [entry for title, entry in registered.items() if title not in titles]
    for entry in entries:
        here.keep_second_correlation(entry)
    woken = plan.woken | {entry.queue_key for entry in entries if isinstance(entry, QueueEntry) and here.keep_trigger(entry, entry.title in titles)}
    whole = build_plan(plan.environment, plan.scripts, entries, features=plan.features | staying, woken=woken)
    return Settled(whole, tuple(here.kept), tuple(here.dropped), tuple(here.forgotten), tuple(here.left))


class _Server:
    """What the server has, and what was decided about it so far."""

    def __init__(
        self,
        plan: Plan,
        journal: Sequence[_Recorded],
        declared: Collection[Declared],
        has_rows: Callable[[str], bool],
    ) -> None:
        self._plan, self._journal, self._declared, self._has_rows = plan, journal, declared, has_rows
        self._uncertain = dict(plan.uncertain)
        self._of_feature: dict[str, list[_Recorded]] = defaultdict(list)  # also by "feature:queue key"
        for each in journal:
            feature = plan.scripts.contract.feature_of(each.script_name)
            for name in (feature, f"{feature}:{each.script_name.partition('.sql:')[2]}"):
                self._of_feature[name].append(each)
        self.kept: list[Kept] = []
        self.dropped: list[str] = []
        self.forgotten: list[str] = []
        self.left: list[str] = []

    def judge_delayed(self, wanted: Entry, registered: Entry | None) -> Entry:
        """Decide about the delayed table of a queue that is declared without one. Return the entry as it is deployed."""
        if not isinstance(wanted, QueueEntry) or not isinstance(registered, QueueEntry) or wanted.delayed or not registered.delayed:
            return wanted
        line = f"write `delayed: true` at the queue {wanted.queue_name}"
        stays = self.judge(delayed_feature(wanted), f"the delayed table of the queue {wanted.queue_name}", line)
        return replace(wanted, delayed=stays)

    def keep_trigger(self, queue: QueueEntry, is_declared: bool) -> bool:
        """Decide about the trigger on inserts of a queue that is planned without one. Return whether it stays."""
        feature = wake_up_feature(queue)
        if queue.queue_key in self._plan.woken or not self._scripts(feature):
            return False
        line = "write `supervisor: {wake_up: everybody}`"
        return not is_declared or self.judge(feature, f"the trigger of the queue {queue.queue_name}", line)

    def keep_second_correlation(self, entry: Entry) -> None:
        """Leave what a saga needed while it moved to another correlation: workers that still move it may run until they are replaced."""
        if not isinstance(entry, SagaEntry) or entry.transitional_name is not None:
            return
        names = [each.script_name for each in self._journal]
        left = [name for name in names if name.partition(".sql:")[2] == entry.saga_key and name.partition(":")[0].endswith(MOVING)]
        if left:
            self.left += left
            self._keep(
                f"the second correlation of the saga {entry.saga_name}",
                "workers that still move the saga may run",
                f"When all are replaced: rowpost sagas drop-correlation {entry.saga_name} PROPERTY, with the property by which nothing is found.",
            )

    def judge(self, feature: str, subject: str, line: str) -> bool:
        """Decide about a feature that the plan does not declare. Return whether it stays."""
        mine = (self._plan.environment, feature) in self._declared
        others = sorted(name for name, each in self._declared if each == feature and name != self._plan.environment)
        scripts = self._scripts(feature)
        filled = [each for each in scripts if each.object_kind == "table" and mine and not others and self._has_rows(each.script_name)]
        keep = f"To keep it, {line} in the environment's file and run rowpost apply."
        if needed_by := self._uncertain.get(feature):
            self._keep(subject, f"{needed_by} cannot be imported here and may need it", keep)
        elif others:
            self._keep(subject, f"the environment {' and '.join(others)} declares it", "Nothing is to be done.")
            self.forgotten += [feature] if mine else []
        elif not mine:
            remedy = f"{keep} To drop it, do that, then remove the line again and run rowpost apply once more."
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

    def _keep(self, subject: str, reason: str, remedy: str) -> None:
        self.kept.append(Kept(subject, reason, remedy))

    def _scripts(self, feature: str) -> list[_Recorded]:
        return self._of_feature.get(feature, [])
