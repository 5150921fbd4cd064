"""What a plan would change against a server: pure comparison of plan, journal and registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from rowpost.deploy.entries import DeclaredFeature, Entry, ScheduleEntry
from rowpost.deploy.features import Kept, deployed_features, settle
from rowpost.deploy.plan import Plan
from rowpost.deploy.state import JournalEntry, ServerState
from rowpost.deploy.steps import ScriptStep

__all__ = ["SERIAL_KEY", "PlanChange", "PlanDiff", "compare"]

#: kinds of objects that no release makes any more: apply drops those that an earlier one made
RETIRED = ("publication",)


#: states of what apply runs
_RUNS = frozenset({"added", "changed", "drifted", "everytime"})


@dataclass(frozen=True)
class PlanChange:
    """One item of the plan and how it stands on the server.

    `state` is one of
        added      not there yet, or rights of a feature that is new on the server
        changed    there with another text, or entered differently
        drifted    its procedure was changed or dropped by hand, or its table dropped: apply makes it again
        altered    its table's columns were changed by hand: apply leaves that alone, verify names it
        edited     a one-time script whose text changed after it ran: apply refuses
        everytime  runs at every deployment
        unchanged
    """

    item: ScriptStep | Entry
    state: str
    entry: JournalEntry | None = None

    @property
    def name(self) -> str:
        """The script's name, or `queue <name>`, `saga <name>` for an entry of the registry."""
        return self.item.title

    @property
    def owner(self) -> str | None:
        """The title of the entry of the registry that the item is or belongs to; None for what all queues share."""
        return self.item.owner if isinstance(self.item, ScriptStep) else self.item.title

    @property
    def runs(self) -> bool:
        """Whether apply runs it."""
        return self.state in _RUNS


@dataclass(frozen=True)
class PlanDiff:
    """The whole comparison.

    `undeclared` are registered queues and sagas that the environment does not declare: they are deployed like the
    others and never dropped; `unknown` are scripts in the journal that this release does not bring. `kept` are features
    that stay without being declared. `dropped` are the scripts whose objects apply drops, because this environment
    declared their features and no longer does. `forgotten` are features that it no longer has on record. `removed` are
    schedules that apply removes, because this environment declared them and no longer does.
    """

    plan: Plan
    changes: tuple[PlanChange, ...]
    undeclared: tuple[str, ...] = ()
    unknown: tuple[JournalEntry, ...] = ()
    kept: tuple[Kept, ...] = ()
    dropped: tuple[JournalEntry, ...] = ()
    forgotten: tuple[DeclaredFeature, ...] = ()
    removed: tuple[ScheduleEntry, ...] = ()

    @cached_property
    def to_run(self) -> tuple[PlanChange, ...]:
        """What apply runs, in order."""
        return tuple(change for change in self.changes if change.state in _RUNS)

    def names(self, state: str) -> tuple[str, ...]:
        """Return the names of what is in a state, in the plan's order."""
        return tuple(change.name for change in self.changes if change.state == state)

    @property
    def is_empty(self) -> bool:
        """Whether apply would find nothing to do (but for what runs every time)."""
        return not self.dropped and not self.removed and all(change.state == "everytime" for change in self.to_run)


def compare(plan: Plan, state: ServerState, has_rows: Callable[[str], bool] = lambda script_name: True) -> PlanDiff:
    """Compare each item of the plan, and all that stays without being declared, with what is on the server.

    `has_rows` as for `settle`.
    """
    recorded = {entry.script_name: entry for entry in state.journal}
    entered = {entry.title: entry for entry in state.registry}
    settled = settle(plan, state, has_rows)
    complete = settled.plan
    steps = complete.steps
    # Several one-time scripts may shape one table: the last one's fingerprint is the one that must be alive.
    last = {step.object_name: step.script_name for step in steps if step.script_name in recorded}
    new = complete.features - deployed_features(plan.scripts, state) if state.journal else frozenset()
    changes: list[PlanChange] = []
    renewed: set[str] = set()
    for item in complete.items:
        if not isinstance(item, ScriptStep):
            title = item.title
            found = _entry_state(item, entered.get(title))
            if found != "unchanged":
                renewed.add(title)
            changes.append(PlanChange(item, found))
        else:
            entry = recorded.get(item.script_name)
            found = _step_state(item, entry, last.get(item.object_name) == item.script_name)
            if found == "everytime" and plan.scripts.contract.feature_of(item.script_name) in new:
                found = "added"
            if found in ("unchanged", "altered") and item.object_kind == "table" and item.owner in renewed:
                found = "changed"  # the registry says what the table should have
            changes.append(PlanChange(item, found, entry))
    if not plan.whole:
        return PlanDiff(complete, tuple(changes))
    retired = [entry.script_name for entry in state.journal if entry.object_kind in RETIRED]
    gone = (*settled.dropped, *retired)
    # a schema stays when nothing is declared in it any more: others may have tables there
    schemas = [entry.script_name for entry in state.journal if entry.object_kind == "schema"]
    known = {*(step.script_name for step in steps), *gone, *settled.left, *schemas}
    titles = {entry.title for entry in plan.entries}
    return PlanDiff(
        complete,
        tuple(changes),
        undeclared=tuple(
            entry.name
            for title, entry in entered.items()
            if title not in titles and not isinstance(entry, ScheduleEntry)  # `kept` and `removed` name these
        ),
        unknown=tuple(entry for name, entry in recorded.items() if name not in known),
        kept=settled.kept,
        dropped=tuple(recorded[name] for name in gone),
        removed=settled.removed,
        forgotten=(
            *settled.forgotten,
            *(each for owner, each in state.declared if owner == plan.environment and each.name in RETIRED),
        ),
    )


def _entry_state(wanted: Entry, entered: Entry | None) -> str:
    if entered is None:
        return "added"
    return "unchanged" if entered == wanted else "changed"


#: in the fingerprint of a table that NServiceBus made on PostgreSQL, and after the remedy of row_version_32_bit
SERIAL_KEY, _WIDE_KEY = "seq integer not null", "seq bigint not null"


def _step_state(step: ScriptStep, entry: JournalEntry | None, decides: bool) -> str:
    """`decides` tells whether this step is the last one to shape its object."""
    if step.kind == "everytime":
        return "everytime"
    if entry is None:
        return "added"
    if entry.script_hash != step.hash:
        return "edited" if step.kind == "once" else "changed"
    if step.object_name is None or not decides or _as_made(entry):
        return "unchanged"
    return "altered" if step.object_kind == "table" and entry.living_fingerprint is not None else "drifted"


def _as_made(entry: JournalEntry) -> bool:
    """Whether an object is as its script left it.

    A table of NServiceBus whose key was widened, as check_queue advises, counts as such.
    """
    recorded = entry.recorded_fingerprint
    return recorded is not None and entry.living_fingerprint in (recorded, recorded.replace(SERIAL_KEY, _WIDE_KEY))
