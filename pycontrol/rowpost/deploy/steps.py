"""The scripts of a deployment as they run: rendered for the database, a queue, a saga or a table of subscriptions. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rowpost.database.contract import Procedure
from rowpost.database.dialects.protocol import Dialect
from rowpost.deploy.queue_entry import QueueEntry, queue_names
from rowpost.deploy.saga_entry import SagaEntry, saga_names
from rowpost.deploy.scripts import Script, ScriptSet, hash_text, render_script
from rowpost.deploy.sql_text import expand
from rowpost.deploy.subscription_entry import SubscriptionEntry, table_names

__all__ = [
    "Step", "database_step", "expanded", "queue_procedures", "queue_step", "queue_steps", "saga_procedures", "saga_step", "saga_steps",
    "subscription_procedures", "subscription_steps",
]  # fmt: skip


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


def queue_procedures(queue: QueueEntry, scripts: ScriptSet, features: Collection[str]) -> tuple[Procedure, ...]:
    """Return the procedures of the contract that a queue has."""
    return scripts.contract.templates(queue.kind, queue.delayed, features)


def saga_procedures(saga: SagaEntry, scripts: ScriptSet) -> tuple[Procedure, ...]:
    """Return the procedures of the contract that a saga has."""
    return scripts.contract.saga_templates(saga.transitional_name is not None)


def expanded(script: Script, fragments: Mapping[str, str]) -> Script:
    """Return a script with these fragments in the place of their names."""
    return Script(script.name, expand(script.text, fragments))


def database_step(script: Script, dialect: Dialect) -> Step:
    """Return the step of a script that a database gets once."""
    name = script.table if script.kind == "once" else script.stem
    if name is None:
        return Step(script.name, script.kind, script.text)
    object_kind = "table" if script.kind == "once" else "procedure"
    return Step(script.name, script.kind, script.text, object_kind, f"rowpost.{dialect.quote(name)}")


def queue_steps(queue: QueueEntry, scripts: ScriptSet, dialect: Dialect, features: Collection[str], woken: Collection[str]) -> Iterator[Step]:
    """Yield the steps of a queue: its tables, its trigger if it is among `woken`, its procedures."""
    names = queue_names(queue, dialect)
    if queue.kind != "external":
        yield queue_step(scripts.create, queue, dialect, "table", names["queue_table"])
    if queue.delayed:
        yield queue_step(scripts.create_delayed, queue, dialect, "table", names["delayed_table"])
    if scripts.create_trigger and queue.queue_key in woken:
        yield queue_step(scripts.create_trigger, queue, dialect, "trigger", f"rowpost.{dialect.quote(f'notify_inserts:{queue.queue_key}')}")
    wanted = {procedure.name for procedure in queue_procedures(queue, scripts, features)}
    for script in scripts.templates:
        if script.stem in wanted or script.stem.startswith("_"):
            name = f"rowpost.{dialect.quote(f'{script.stem}:{queue.queue_key}')}"
            yield queue_step(script, queue, dialect, "procedure", name)


def queue_step(script: Script, queue: QueueEntry, dialect: Dialect, object_kind: str | None = None, object_name: str | None = None) -> Step:
    """Return the step of one script for a queue. Raises DeployError."""
    text = render_script(script, queue_names(queue, dialect), dialect.name)
    name = f"{script.name}:{queue.queue_key}"
    return Step(name, script.kind, text, object_kind, object_name, queue.title)


def saga_steps(saga: SagaEntry, scripts: ScriptSet, dialect: Dialect) -> Iterator[Step]:
    """Yield the steps of a saga: its table, its procedures."""
    moving = saga.transitional_name is not None
    for script in scripts.saga_tables:
        if moving or "{transitional_column}" not in script.text:
            yield saga_step(script, saga, dialect, "table", saga_names(saga, dialect)["saga_table"])
    wanted = {procedure.name for procedure in saga_procedures(saga, scripts)}
    for script in scripts.saga_templates:
        if script.stem in wanted:
            yield saga_step(script, saga, dialect, "procedure", f"rowpost.{dialect.quote(f'{script.stem}:{saga.saga_key}')}")


def saga_step(script: Script, saga: SagaEntry, dialect: Dialect, object_kind: str | None = None, object_name: str | None = None) -> Step:
    """Return the step of one script for a saga. Raises DeployError."""
    text = render_script(script, saga_names(saga, dialect), dialect.name)
    return Step(f"{script.name}:{saga.saga_key}", script.kind, text, object_kind, object_name, saga.title)


def subscription_steps(entry: SubscriptionEntry, scripts: ScriptSet, dialect: Dialect) -> Iterator[Step]:
    """Yield the steps of a table of subscriptions: the table, unless it is in another database, and its procedures."""
    names = table_names(entry, dialect)
    if entry.catalog_name is None:  # a table in another database is made there
        for script in scripts.subscription_tables:
            text = render_script(script, names, dialect.name)
            yield Step(f"{script.name}:{entry.table_key}", script.kind, text, "table", names["subscription_table"], entry.title)
    for step in subscription_procedures(entry, scripts, dialect):
        yield replace(step, owner=entry.title)


def subscription_procedures(entry: SubscriptionEntry, scripts: ScriptSet, dialect: Dialect) -> Iterator[Step]:
    """Yield the steps of the procedures of a table of subscriptions; they belong to the shared objects."""
    for script in scripts.subscription_templates:
        text = render_script(script, table_names(entry, dialect), dialect.name)
        name = f"rowpost.{dialect.quote(f'{script.stem}:{entry.table_key}')}"
        yield Step(f"{script.name}:{entry.table_key}", script.kind, text, "procedure", name)
