"""What a deployment does, as a value: the scripts in their order, the registry's entries, and one script of it all.

Nothing here connects to anything. `plan(settings).script` is what a DBA reads and may run by hand, with sqlcmd or
psql; `rowpost.deploy.apply` runs the same steps, minus those that the journal says are already there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path

from rowpost.database.contract import CORE, FEATURES_OF_QUEUES
from rowpost.database.dialects.choice import dialect_for
from rowpost.database.dialects.protocol import Dialect
from rowpost.deploy.contract_sql import drop_procedures, role_grants, template_rows
from rowpost.deploy.queue_entry import QueueEntry, delayed_feature, describe_queue, wake_up_feature
from rowpost.deploy.runner import BATCH_GUARD, SCRIPT_END, SESSION_BATCH, code_only
from rowpost.deploy.saga_entry import SagaEntry, describe_saga
from rowpost.deploy.scripts import ScriptSet, hash_text, load_scripts
from rowpost.deploy.sql_text import split_batches
from rowpost.deploy.steps import (
    Step,
    database_step,
    expanded,
    queue_procedures,
    queue_step,
    queue_steps,
    saga_procedures,
    saga_step,
    saga_steps,
    subscription_procedures,
    subscription_steps,
)  # fmt: skip
from rowpost.deploy.subscription_entry import SubscriptionEntry, default_table, describe_table
from rowpost.errors import DeployError
from rowpost.settings.environment import OutboxSettings, Settings
from rowpost.version import __version__
from rowpost.wire.address import DEFAULT_SCHEMA, SUBSCRIPTION_TABLE

__all__ = [
    "Entry", "Plan", "build_plan", "business_settings", "contract_fragments", "count_by_feature", "declared_features",
    "deployed_features", "plan",
]  # fmt: skip

HOW_TO_RUN = {
    "sqlserver": "sqlcmd -S <server> -d <database> -b -x -f 65001 -i <this file>",
    "postgresql": "PGCLIENTENCODING=UTF8 psql -v ON_ERROR_STOP=1 -f <this file> <database>",
}


Entry = QueueEntry | SagaEntry | SubscriptionEntry


@dataclass(frozen=True)
class Plan:
    """A deployment of one environment. `items` are in the order in which they run.

    `whole` is False for the deployment of a few queues into a database that has the rest already. `features` are those whose
    objects are in `items`. `woken` are the keys of queues with a trigger on inserts. `declared` are the features that the environment
    declares, with `delayed:<queue key>` for a queue with a delayed table and `wake_up:<queue key>` for one with that trigger: the
    database records them for the environment. `uncertain` are features that something needs which could not be
    imported here, each with that something.
    """

    environment: str
    scripts: ScriptSet = field(repr=False)
    items: tuple[Step | Entry, ...] = field(repr=False)
    tool_version: str = __version__
    whole: bool = True
    features: frozenset[str] = frozenset()
    woken: frozenset[str] = frozenset()
    uncertain: tuple[tuple[str, str], ...] = ()

    @property
    def declared(self) -> tuple[str, ...]:
        """Features, also those of single queues, as the database records them; none with scripts of a release without the record."""
        if not any(script.stem == "record_feature" for script in self.scripts.database):
            return ()
        of_queues = [delayed_feature(queue) for queue in self.queues if queue.delayed]
        of_queues += [wake_up_feature(queue) for queue in self.queues if queue.queue_key in self.woken]
        return (*sorted(self.features), *sorted(of_queues))

    @property
    def engine(self) -> str:
        """postgresql or sqlserver."""
        return self.scripts.engine

    @property
    def schema_version(self) -> int:
        """Number of the newest one-time script."""
        return self.scripts.schema_version

    @property
    def steps(self) -> tuple[Step, ...]:
        """The scripts."""
        return tuple(item for item in self.items if isinstance(item, Step))

    @property
    def queues(self) -> tuple[QueueEntry, ...]:
        """The registry's entries of queues."""
        return tuple(item for item in self.items if isinstance(item, QueueEntry))

    @property
    def sagas(self) -> tuple[SagaEntry, ...]:
        """The registry's entries of sagas."""
        return tuple(item for item in self.items if isinstance(item, SagaEntry))

    @property
    def subscriptions(self) -> tuple[SubscriptionEntry, ...]:
        """The registry's entries of tables of subscriptions other than the default one."""
        return tuple(item for item in self.items if isinstance(item, SubscriptionEntry))

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All that is registered."""
        return (*self.subscriptions, *self.queues, *self.sagas)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of everything that the script does, hexadecimal: the same for the same plan."""
        return hash_text(self._body)

    @property
    def script(self) -> str:
        """One script, complete and safe to run again: what apply does on an empty database."""
        made = (step.script_name for step in self.steps if step.object_name is not None)
        header = (
            f"rowpost {self.tool_version}: deployment of the environment {self.environment} ({self.engine})",
            f"Schema {self.schema_version}, {len(self.steps)} scripts, {_counted(self)}. Plan {self.hash}",
            *(f"{feature}: {count} objects, to {purpose}" for feature, count, purpose in count_by_feature(self, made)),
            f"Run it with: {HOW_TO_RUN[self.engine]}",
            "One transaction: after an error nothing of it remains. Running it again does no harm.",
        )
        return "".join(f"-- {line}\n" for line in header) + self._body

    @cached_property
    def _body(self) -> str:
        return "".join(_sections(self, dialect_for(self.engine)))


def plan(settings: Settings, folder: Path | None = None) -> Plan:
    """Return the deployment of an environment, offline. `folder` is the sql folder to take instead of the product's own.

    Raises DeployError for scripts that cannot be read or rendered, and for `wake_up: everybody` on SQL Server.
    """
    queues = [describe_queue(queue, settings.engine) for queue in settings.queues]
    everybody = settings.supervisor.wake_up == "everybody"
    if everybody and settings.engine == "sqlserver":
        raise DeployError(
            f"The environment {settings.environment} has `wake_up: everybody`, which only PostgreSQL can do, because SQL Server has no "
            "NOTIFY: write `wake_up: true`, and a shorter `peek_delay` at the workers of queues whose messages must not wait."
        )
    woken = [queue.queue_key for queue in queues if everybody and queue.kind != "external"]
    entries: list[Entry] = [*queues, *(describe_saga(saga, settings.engine) for saga in settings.sagas)]
    entries += [describe_table(name, settings.engine) for name in (settings.subscription_table,) if name != SUBSCRIPTION_TABLE]
    scripts = load_scripts(settings.engine, folder)
    return build_plan(settings.declarant, scripts, entries, features=declared_features(settings, scripts), woken=woken)


def declared_features(settings: Settings, scripts: ScriptSet) -> frozenset[str]:
    """Return the features that an environment has: those that it names, those of its sections, and those of its engine."""
    of_sections = {"sagas": settings.sagas, "outbox": settings.outboxes, "transactions": settings.participants}
    named = {*settings.features, *(name for name, section in of_sections.items() if section)}
    known = scripts.contract.features
    return frozenset(name for name, each in known.items() if name in named or settings.engine in each.always)


def deployed_features(scripts: ScriptSet, script_names: Iterable[str]) -> frozenset[str]:
    """Return the features of scripts that ran, by their names in the journal; without the core, and without those that single queues have."""
    return frozenset(map(scripts.contract.feature_of, script_names)) - {CORE} - FEATURES_OF_QUEUES


def count_by_feature(plan: Plan, script_names: Iterable[str]) -> list[tuple[str, int, str]]:
    """Each feature of these scripts, with the number of scripts and what the feature is for."""
    contract = plan.scripts.contract
    counts = Counter(map(contract.feature_of, script_names))
    order = (name for name in contract.features if name in counts)
    return [(name, counts[name], contract.features[name].purpose) for name in order]


def business_settings(settings: Settings, outbox: OutboxSettings) -> Settings:
    """Return the settings with which rowpost is deployed into a business database: the same, with the outbox and without queues."""
    return replace(
        settings,
        business_of=outbox.name,
        features=("outbox",),
        engine=outbox.engine,
        url=outbox.url,
        default_schema=DEFAULT_SCHEMA[outbox.engine],
        subscription_table=SUBSCRIPTION_TABLE,
        queues=(),
        sagas=(),
        participants=(),
        outboxes=(),
    )


def build_plan(
    environment: str, scripts: ScriptSet, entries: Iterable[Entry], whole: bool = True, features: Collection[str] = (), woken: Collection[str] = (),
) -> Plan:  # fmt: skip
    """Return a plan out of its parts, tables of subscriptions, queues and then sagas in the order given; not `whole`: of these alone.

    `woken`: keys of queues with a trigger.
    """
    entries = list(entries)
    queues = [entry for entry in entries if isinstance(entry, QueueEntry)]
    sagas = [entry for entry in entries if isinstance(entry, SagaEntry)] if scripts.saga_tables else []
    subscriptions = [entry for entry in entries if isinstance(entry, SubscriptionEntry)] if scripts.subscription_tables else []
    features = frozenset(features) | ({"sagas"} if sagas else frozenset())
    woken = frozenset(woken) if scripts.create_trigger else frozenset()
    dialect = dialect_for(scripts.engine)
    fragments = contract_fragments(scripts, features)
    wanted = [script for script in scripts.database if scripts.contract.feature_of(script.name) in {CORE, *features}] if whole else []
    items: list[Step | Entry] = [database_step(expanded(script, fragments), dialect) for script in wanted]
    if whole:
        items += subscription_procedures(default_table(scripts.engine), scripts, dialect)
    for table in subscriptions:
        items += [table, *subscription_steps(table, scripts, dialect)]
    for queue in queues:
        items += [queue, *queue_steps(queue, scripts, dialect, features, woken)]
    for saga in sagas:
        items += [saga, *saga_steps(saga, scripts, dialect)]
    if whole:
        grants = expanded(scripts.grants, fragments)
        items.append(Step(grants.name, grants.kind, grants.text))
    for queue in queues:
        granted = role_grants(scripts.engine, queue_procedures(queue, scripts, features))
        items.append(queue_step(expanded(scripts.queue_grants, {"procedure_grants": granted}), queue, dialect))
    for saga in sagas:
        granted = role_grants(scripts.engine, saga_procedures(saga, scripts))
        items += [saga_step(expanded(script, {"procedure_grants": granted}), saga, dialect) for script in scripts.saga_grants]
    return Plan(environment, scripts, tuple(items), whole=whole, features=features, woken=woken)


def contract_fragments(scripts: ScriptSet, features: Collection[str] | None = None) -> dict[str, str]:
    """Return the SQL that the scripts' own contract determines, by placeholder; only of these features, or of all if None."""
    contract, engine = scripts.contract, scripts.engine
    granted = [each for each in contract.procedures if each.scope == "database" and (features is None or each.feature in {CORE, *features})]
    return {
        "procedure_grants": role_grants(engine, granted),
        "queue_procedures": template_rows(contract.templates(features=features)),
        "drop_queue_procedures": drop_procedures(engine, contract.templates()),
        "drop_saga_procedures": drop_procedures(engine, contract.saga_templates()),
    }


def _counted(plan: Plan) -> str:
    return f"{len(plan.queues)} queues" + (f", {len(plan.sagas)} sagas" if plan.sagas else "")


def _sections(plan: Plan, dialect: Dialect) -> Iterator[str]:
    find = plan.scripts.contract.find

    def section(title: str, text: str, guard: str = BATCH_GUARD[dialect.name]) -> str:
        rule = "-- " + "=" * 100
        body = _guarded_batches(text, guard) if dialect.name == "sqlserver" else text.rstrip() + "\n"
        return f"\n{rule}\n-- {title}\n{rule}\n{body}"

    def call(procedure: str, arguments: Mapping[str, object]) -> str:
        return dialect.script_call(find(procedure, "database"), tuple(arguments.items())) + "\n"

    yield section(plan.scripts.begin.name, plan.scripts.begin.text)
    for item in plan.items:
        if isinstance(item, Step):
            purpose = plan.scripts.contract.feature_of(item.script_name)
            yield section(f"{item.script_name} ({item.kind}, for {purpose})", item.text)
        else:
            values = dict(zip((each.name for each in fields(item)), astuple(item), strict=True))
            title = " ".join(item.title.split())
            if isinstance(item, SagaEntry):
                yield section(title, call("register_saga", values))
            elif isinstance(item, SubscriptionEntry):
                yield section(title, call("register_subscription_table", values))
            else:
                yield section(f"{title} ({item.kind})", call("register_queue", values))
    records = "".join(call("record_script", step.record) for step in plan.steps)
    yield section("the journal: what ran, and what it left behind", records)
    if plan.whole and plan.declared:
        declared = "".join(call("record_feature", {"environment": plan.environment, "feature": each}) for each in plan.declared)
        yield section("the features that this environment declares", declared)
    version = {"schema_version": plan.schema_version, "tool_version": plan.tool_version}
    yield section("the version", call("record_version", version))
    yield section(plan.scripts.commit.name, plan.scripts.commit.text, guard="") + SCRIPT_END[dialect.name]


def _guarded_batches(text: str, guard: str) -> str:
    """Return the batches of a T-SQL script, each with `guard` behind it; one that only changes settings cannot fail."""
    batches = (batch.text.strip("\n") for batch in split_batches(text, "sqlserver"))
    return "".join(f"{batch}\nGO\n{'' if SESSION_BATCH.fullmatch(code_only(batch)) else guard}" for batch in batches)
