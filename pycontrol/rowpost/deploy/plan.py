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
from typing import Any

from rowpost.database.contract import CORE, FEATURES_OF_QUEUES, Procedure
from rowpost.database.dialects.choice import dialect_for
from rowpost.database.dialects.protocol import Dialect
from rowpost.deploy.contract_sql import drop_procedures, role_grants, template_rows
from rowpost.deploy.queue_entry import QueueEntry, delayed_feature, describe_queue, queue_names, wake_up_feature
from rowpost.deploy.runner import BATCH_GUARD, SCRIPT_END, SESSION_BATCH, code_only
from rowpost.deploy.saga_entry import SagaEntry, describe_saga, saga_names
from rowpost.deploy.scripts import Script, ScriptSet, hash_text, load_scripts, render_script
from rowpost.deploy.sql_text import expand, split_batches
from rowpost.errors import DeployError
from rowpost.settings.environment import OutboxSettings, Settings
from rowpost.version import __version__
from rowpost.wire.address import DEFAULT_SCHEMA

__all__ = [
    "Entry", "Plan", "Step", "build_plan", "business_settings", "contract_fragments", "count_by_feature", "declared_features",
    "deployed_features", "plan",
]  # fmt: skip

HOW_TO_RUN = {
    "sqlserver": "sqlcmd -S <server> -d <database> -b -x -f 65001 -i <this file>",
    "postgresql": "PGCLIENTENCODING=UTF8 psql -v ON_ERROR_STOP=1 -f <this file> <database>",
}


Entry = QueueEntry | SagaEntry


@dataclass(frozen=True)
class Step:
    """One script as it runs: rendered, with the object that it leaves behind, and the entry it belongs to, by title."""

    script_name: str
    kind: str
    text: str
    object_kind: str | None = None
    object_name: str | None = None
    owner: str | None = None

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the rendered text, hexadecimal."""
        return hash_text(self.text)

    @property
    def record(self) -> dict[str, Any]:
        """The arguments of record_script."""
        return {
            "script_name": self.script_name,
            "script_kind": self.kind,
            "script_hash": self.hash,
            "object_kind": self.object_kind,
            "object_name": self.object_name,
        }


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
    def entries(self) -> tuple[Entry, ...]:
        """All that is registered."""
        return (*self.queues, *self.sagas)

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
    """The deployment of an environment, offline. `folder` is the sql folder to take instead of the product's own.

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
    scripts = load_scripts(settings.engine, folder)
    return build_plan(settings.declarant, scripts, entries, features=declared_features(settings, scripts), woken=woken)


def declared_features(settings: Settings, scripts: ScriptSet) -> frozenset[str]:
    """The features that an environment has: those that it names, those of its sections, and those of its engine."""
    of_sections = {"sagas": settings.sagas, "outbox": settings.outboxes, "transactions": settings.participants}
    named = {*settings.features, *(name for name, section in of_sections.items() if section)}
    known = scripts.contract.features
    return frozenset(name for name, each in known.items() if name in named or settings.engine in each.always)


def deployed_features(scripts: ScriptSet, script_names: Iterable[str]) -> frozenset[str]:
    """The features of scripts that ran, by their names in the journal; without the core, and without those that single queues have."""
    return frozenset(map(scripts.contract.feature_of, script_names)) - {CORE} - FEATURES_OF_QUEUES


def count_by_feature(plan: Plan, script_names: Iterable[str]) -> list[tuple[str, int, str]]:
    """Each feature of these scripts, with the number of scripts and what the feature is for."""
    contract = plan.scripts.contract
    counts = Counter(map(contract.feature_of, script_names))
    order = (name for name in contract.features if name in counts)
    return [(name, counts[name], contract.features[name].purpose) for name in order]


def business_settings(settings: Settings, outbox: OutboxSettings) -> Settings:
    """The settings with which rowpost is deployed into a business database: the same, with the outbox and without queues."""
    return replace(
        settings,
        business_of=outbox.name,
        features=("outbox",),
        engine=outbox.engine,
        url=outbox.url,
        default_schema=DEFAULT_SCHEMA[outbox.engine],
        queues=(),
        sagas=(),
        participants=(),
        outboxes=(),
    )


def build_plan(
    environment: str, scripts: ScriptSet, entries: Iterable[Entry], whole: bool = True, features: Collection[str] = (), woken: Collection[str] = ()
) -> Plan:
    """A plan out of its parts, queues and then sagas in the order given; not `whole`: of these alone. `woken`: keys of queues with a trigger."""
    entries = list(entries)
    queues = [entry for entry in entries if isinstance(entry, QueueEntry)]
    sagas = [entry for entry in entries if isinstance(entry, SagaEntry)] if scripts.saga_tables else []
    features = frozenset(features) | ({"sagas"} if sagas else frozenset())
    woken = frozenset(woken) if scripts.create_trigger else frozenset()
    dialect = dialect_for(scripts.engine)
    fragments = contract_fragments(scripts, features)
    wanted = [script for script in scripts.database if scripts.contract.feature_of(script.name) in {CORE, *features}] if whole else []
    items: list[Step | Entry] = [_database_step(_expanded(script, fragments), dialect) for script in wanted]
    for queue in queues:
        items += [queue, *_queue_steps(queue, scripts, dialect, features, woken)]
    for saga in sagas:
        items += [saga, *_saga_steps(saga, scripts, dialect)]
    if whole:
        grants = _expanded(scripts.grants, fragments)
        items.append(Step(grants.name, grants.kind, grants.text))
    for queue in queues:
        granted = role_grants(scripts.engine, _queue_procedures(queue, scripts, features))
        items.append(_queue_step(_expanded(scripts.queue_grants, {"procedure_grants": granted}), queue, dialect))
    for saga in sagas:
        granted = role_grants(scripts.engine, _saga_procedures(saga, scripts))
        items += [_saga_step(_expanded(script, {"procedure_grants": granted}), saga, dialect) for script in scripts.saga_grants]
    return Plan(environment, scripts, tuple(items), whole=whole, features=features, woken=woken)


def contract_fragments(scripts: ScriptSet, features: Collection[str] | None = None) -> dict[str, str]:
    """The SQL that the scripts' own contract determines, by placeholder; only of these features, or of all if None."""
    contract, engine = scripts.contract, scripts.engine
    granted = [each for each in contract.procedures if each.scope == "database" and (features is None or each.feature in {CORE, *features})]
    return {
        "procedure_grants": role_grants(engine, granted),
        "queue_procedures": template_rows(contract.templates(features=features)),
        "drop_queue_procedures": drop_procedures(engine, contract.templates()),
        "drop_saga_procedures": drop_procedures(engine, contract.saga_templates()),
    }


def _queue_procedures(queue: QueueEntry, scripts: ScriptSet, features: Collection[str]) -> tuple[Procedure, ...]:
    return scripts.contract.templates(queue.kind, queue.delayed, features)


def _saga_procedures(saga: SagaEntry, scripts: ScriptSet) -> tuple[Procedure, ...]:
    return scripts.contract.saga_templates(saga.transitional_name is not None)


def _expanded(script: Script, fragments: Mapping[str, str]) -> Script:
    return Script(script.name, expand(script.text, fragments))


def _database_step(script: Script, dialect: Dialect) -> Step:
    name = script.table if script.kind == "once" else script.stem
    if name is None:
        return Step(script.name, script.kind, script.text)
    object_kind = "table" if script.kind == "once" else "procedure"
    return Step(script.name, script.kind, script.text, object_kind, f"rowpost.{dialect.quote(name)}")


def _queue_steps(
    queue: QueueEntry, scripts: ScriptSet, dialect: Dialect, features: Collection[str], woken: Collection[str]
) -> Iterator[Step]:
    names = queue_names(queue, dialect)
    if queue.kind != "external":
        yield _queue_step(scripts.create, queue, dialect, "table", names["queue_table"])
    if queue.delayed:
        yield _queue_step(scripts.create_delayed, queue, dialect, "table", names["delayed_table"])
    if scripts.create_trigger and queue.queue_key in woken:
        yield _queue_step(scripts.create_trigger, queue, dialect, "trigger", f"rowpost.{dialect.quote(f'notify_inserts:{queue.queue_key}')}")
    wanted = {procedure.name for procedure in _queue_procedures(queue, scripts, features)}
    for script in scripts.templates:
        if script.stem in wanted or script.stem.startswith("_"):
            name = f"rowpost.{dialect.quote(f'{script.stem}:{queue.queue_key}')}"
            yield _queue_step(script, queue, dialect, "procedure", name)


def _queue_step(
    script: Script, queue: QueueEntry, dialect: Dialect, object_kind: str | None = None, object_name: str | None = None
) -> Step:
    text = render_script(script, queue_names(queue, dialect), dialect.name)
    name = f"{script.name}:{queue.queue_key}"
    return Step(name, script.kind, text, object_kind, object_name, queue.title)


def _saga_steps(saga: SagaEntry, scripts: ScriptSet, dialect: Dialect) -> Iterator[Step]:
    moving = saga.transitional_name is not None
    for script in scripts.saga_tables:
        if moving or "{transitional_column}" not in script.text:
            yield _saga_step(script, saga, dialect, "table", saga_names(saga, dialect)["saga_table"])
    wanted = {procedure.name for procedure in _saga_procedures(saga, scripts)}
    for script in scripts.saga_templates:
        if script.stem in wanted:
            yield _saga_step(script, saga, dialect, "procedure", f"rowpost.{dialect.quote(f'{script.stem}:{saga.saga_key}')}")


def _saga_step(
    script: Script, saga: SagaEntry, dialect: Dialect, object_kind: str | None = None, object_name: str | None = None
) -> Step:
    text = render_script(script, saga_names(saga, dialect), dialect.name)
    return Step(f"{script.name}:{saga.saga_key}", script.kind, text, object_kind, object_name, saga.title)


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
    """The batches of a T-SQL script, each with `guard` behind it; one that only changes settings cannot fail."""
    batches = (batch.text.strip("\n") for batch in split_batches(text, "sqlserver"))
    return "".join(f"{batch}\nGO\n{'' if SESSION_BATCH.fullmatch(code_only(batch)) else guard}" for batch in batches)
