"""What a deployment does, as a value: the scripts in their order, the registry's entries, and one script of it all.

Nothing here connects to anything. `plan(settings).script` is what a DBA reads and may run by hand, with sqlcmd or
psql; `rowpost.deploy.apply` runs the same steps, minus those that the journal says are already there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from rowpost.database.contract import FEATURES_OF_QUEUES, ROLES
from rowpost.deploy.by_hand import HOW_TO_RUN, Section, progress_text, spell_calls, spell_script
from rowpost.deploy.entries import (
    DeclaredFeature,
    Entry,
    QueueEntry,
    Rendered,
    SagaEntry,
    ScheduleEntry,
    SubscriptionEntry,
    default_table,
    describe_queue,
    describe_saga,
    describe_schedule,
    describe_subscriptions,
)
from rowpost.deploy.scripts import ScriptSet, hash_text, load_scripts
from rowpost.deploy.steps import Rendering, ScriptStep
from rowpost.errors import DeployError
from rowpost.settings.environment import OutboxSettings, Settings
from rowpost.settings.target import database_of
from rowpost.version import __version__
from rowpost.wire.address import DEFAULT_SCHEMA, SUBSCRIPTION_TABLE

__all__ = [
    "Plan",
    "build_plan",
    "business_settings",
    "count_by_feature",
    "declared_features",
    "plan",
    "script_header",
    "sections_of",
    "title_of",
]


@dataclass(frozen=True)
class Plan:
    """A deployment of one environment. `items` are in the order in which they run.

    Attributes:
        environment: for which the database records the features.
        scripts: the release's.
        items: entries of the registry, each before its steps.
        whole: False for the deployment of a few queues into a database that has the rest already.
        features: those whose objects are in `items`.
        uncertain: features that something needs which could not be imported here, each with that something.
        database: the only one in which the script runs; empty if it is not known.
    """

    environment: str
    scripts: ScriptSet = field(repr=False)
    items: tuple[ScriptStep | Entry, ...] = field(repr=False)
    tool_version: str = __version__
    whole: bool = True
    features: frozenset[str] = frozenset()
    uncertain: tuple[tuple[str, str], ...] = ()
    database: str = ""

    @property
    def declared(self) -> tuple[DeclaredFeature, ...]:
        """The features that the environment declares, also those of single queues, and its schedules; none with scripts
        of a release without the record.
        """
        if not any(script.stem == "record_feature" for script in self.scripts.database):
            return ()
        of_queues = (
            DeclaredFeature(name, each.key)
            for name in FEATURES_OF_QUEUES
            for each in self.queues
            if getattr(each, name)
        )
        schedules = (each.declared for each in self.schedules)
        return (*map(DeclaredFeature, sorted(self.features)), *sorted(of_queues), *sorted(schedules))

    @property
    def engine(self) -> str:
        """postgresql or sqlserver."""
        return self.scripts.engine

    @property
    def schema_version(self) -> int:
        """Number of the newest one-time script."""
        return self.scripts.schema_version

    @property
    def steps(self) -> tuple[ScriptStep, ...]:
        """The scripts."""
        return tuple(item for item in self.items if isinstance(item, ScriptStep))

    @property
    def queues(self) -> tuple[QueueEntry, ...]:
        """The registry's entries of queues."""
        return tuple(item for item in self.items if isinstance(item, QueueEntry))

    @property
    def schedules(self) -> tuple[ScheduleEntry, ...]:
        """The registry's entries of schedules."""
        return tuple(item for item in self.items if isinstance(item, ScheduleEntry))

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All that is registered: tables of subscriptions other than the default one, queues, sagas, schedules."""
        return tuple(item for item in self.items if not isinstance(item, ScriptStep))

    @cached_property
    def hash(self) -> str:
        """SHA-256 of everything that the script does, hexadecimal: the same for the same plan of any database."""
        return hash_text(spell_script(self.scripts, self._sections))

    @property
    def script(self) -> str:
        """One script, complete and safe to run again: what apply does on an empty database."""
        made = (step.script_name for step in self.steps if step.object_name is not None)
        about = (
            f"Schema {self.schema_version}, {len(self.steps)} scripts, {_counted(self)}. Plan {self.hash}",
            *(f"{feature}: {count} objects, to {purpose}" for feature, count, purpose in count_by_feature(self, made)),
        )
        return script_header(self, about) + spell_script(self.scripts, self._sections, self.database)

    @cached_property
    def _sections(self) -> tuple[Section, ...]:
        return tuple(sections_of(self, self.items, self.declared if self.whole else (), version=True))


def plan(settings: Settings, folder: Path | None = None) -> Plan:
    """Return the deployment of an environment, offline.

    `folder` is the sql folder to take instead of the product's own.

    Raises DeployError for scripts that cannot be read or rendered, and for `wake_up: everybody` on SQL Server.
    """
    everybody, engine = settings.supervisor.wake_up == "everybody", settings.engine
    if everybody and engine == "sqlserver":
        raise DeployError(
            f"The environment {settings.environment} has `wake_up: everybody`, which only PostgreSQL can do, because "
            "SQL Server has no NOTIFY: write `wake_up: true`, and a shorter `peek_delay` at the workers of queues "
            "whose messages must not wait."
        )
    entries: list[Entry] = [describe_queue(queue, engine, wake_up=everybody) for queue in settings.queues]
    entries += [describe_saga(saga, engine) for saga in settings.own_sagas]
    entries += [describe_schedule(schedule) for schedule in settings.schedules]
    entries += [
        describe_subscriptions(name, engine) for name in (settings.subscription_table,) if name != SUBSCRIPTION_TABLE
    ]
    scripts = load_scripts(engine, folder)
    made = build_plan(settings.declarant, scripts, entries, features=declared_features(settings, scripts))
    return replace(made, database=database_of(engine, settings.url))


def declared_features(settings: Settings, scripts: ScriptSet) -> frozenset[str]:
    """Return the features that an environment has: those that it names, those of its keys and sections, and those of
    its engine.
    """
    of_sections: dict[str, object] = {
        "sagas": settings.own_sagas,
        "schedules": settings.schedules,
        "outbox": settings.outboxes,
        "transactions": settings.participants,
        ROLES: settings.engine == "postgresql" and settings.has_roles,
    }
    named = {*settings.features, *(name for name, section in of_sections.items() if section)}
    known = scripts.contract.features
    return frozenset(name for name, each in known.items() if name in named or settings.engine in each.always)


def count_by_feature(plan: Plan, script_names: Iterable[str]) -> list[tuple[str, int, str]]:
    """Each feature of these scripts, with the number of scripts and what the feature is for."""
    contract = plan.scripts.contract
    counts = Counter(map(contract.feature_of, script_names))
    order = (name for name in contract.features if name in counts)
    return [(name, counts[name], contract.features[name].purpose) for name in order]


def business_settings(settings: Settings, outbox: OutboxSettings) -> Settings:
    """Return the settings with which rowpost is deployed into a business database: the same, with the outbox and its
    sagas, and without queues.
    """
    return replace(
        settings,
        business_of=outbox.name,
        features=("outbox",),
        engine=outbox.engine,
        url=outbox.url,
        default_schema=DEFAULT_SCHEMA[outbox.engine],
        subscription_table=SUBSCRIPTION_TABLE,
        queues=(),
        schedules=(),
        participants=(),
        outboxes=(),
    )


def build_plan(
    environment: str, scripts: ScriptSet, entries: Iterable[Entry], whole: bool = True, features: Collection[str] = ()
) -> Plan:
    """Return a plan out of its parts, tables of subscriptions, queues, sagas and then schedules in the order given; not
    `whole`: of these alone. Their schemas are made before them.

    What a release does not know is left out: schemas, sagas, tables of subscriptions, schedules, triggers.
    """
    given = list(entries)
    queues = [entry for entry in given if isinstance(entry, QueueEntry)]
    sagas = [entry for entry in given if isinstance(entry, SagaEntry)] if scripts.saga.tables else []
    subscriptions = (
        [entry for entry in given if isinstance(entry, SubscriptionEntry)] if scripts.subscription.tables else []
    )
    stores_schedules = any(script.stem == ScheduleEntry.register for script in scripts.database)
    schedules = [entry for entry in given if isinstance(entry, ScheduleEntry)] if stores_schedules else []
    if not any(script.stem == "create_trigger" for script in scripts.queue.tables):
        queues = [replace(queue, wake_up=False) if queue.wake_up else queue for queue in queues]
    features = frozenset(features) | ({"sagas"} if sagas else frozenset())
    features |= {"schedules"} if schedules else frozenset()
    rendering = Rendering(scripts, features)
    items: list[ScriptStep | Entry] = []
    registered: list[Rendered] = [*subscriptions, *queues, *sagas]
    placed = [default_table(scripts.engine), *registered] if whole else registered
    for schema in sorted({each.made_schema for each in placed if each.made_schema is not None}):
        items += rendering.schema(schema)
    if whole:
        items += rendering.shared()
    for entry in registered:
        items += [entry, *rendering.steps_of(entry)]
    items += schedules
    if whole:
        items += rendering.grants()
    for entry in registered:
        items += rendering.grants_of(entry)
    return Plan(environment, scripts, tuple(items), whole=whole, features=features)


def _counted(plan: Plan) -> str:
    sagas = sum(isinstance(entry, SagaEntry) for entry in plan.entries)
    counts = {"sagas": sagas, "schedules": len(plan.schedules)}
    return f"{len(plan.queues)} queues" + "".join(f", {count} {noun}" for noun, count in counts.items() if count)


def script_header(plan: Plan, about: Iterable[str]) -> str:
    """Return the lines above a script of a plan: what it is, `about` and how to run it."""
    lines = (
        f"rowpost {plan.tool_version}: deployment of the environment {plan.environment} ({plan.engine})",
        *about,
        f"Run it with: {HOW_TO_RUN[plan.engine]}",
        "One transaction: after an error nothing of it remains. Running it again does no harm.",
    )
    return "".join(f"-- {line}\n" for line in lines)


def sections_of(
    plan: Plan, items: Iterable[ScriptStep | Entry], declared: Iterable[DeclaredFeature], *, version: bool
) -> Iterator[Section]:
    """Return the sections of these items of a plan, of their records in the journal, and of the features `declared`.

    With `version`, also of the record of the release.
    """
    steps = []
    for item in items:
        if isinstance(item, ScriptStep):
            steps.append(item)
            yield title_of(plan, item), item.text
        else:
            title = " ".join(item.title.split()) + (f" ({item.kind})" if isinstance(item, QueueEntry) else "")
            call = spell_calls(plan.scripts, item.register, [item.record])
            yield title, progress_text(plan.engine, title) + call
    records = spell_calls(plan.scripts, "record_script", (step.record for step in steps))
    yield "the journal: what ran, and what it left behind", records
    if features := [{"environment": plan.environment, "feature": each.text} for each in declared]:
        yield "the features that this environment declares", spell_calls(plan.scripts, "record_feature", features)
    if version:
        record = {"schema_version": plan.schema_version, "tool_version": plan.tool_version}
        yield "the version", spell_calls(plan.scripts, "record_version", [record])


def title_of(plan: Plan, step: ScriptStep) -> str:
    """Return the title of a script's section."""
    return f"{step.script_name} ({step.kind}, for {plan.scripts.contract.feature_of(step.script_name)})"
