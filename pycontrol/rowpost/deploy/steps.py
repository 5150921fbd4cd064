"""The scripts of a deployment as they run: rendered for the database, or for an entry of the registry. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rowpost.database.contract import CORE, ROLES
from rowpost.database.dialects.choice import dialect_for
from rowpost.deploy.contract_sql import contract_fragments, name_recoverable, public_revokes, role_grants
from rowpost.deploy.entries import QueueEntry, Rendered, SagaEntry, SubscriptionEntry, default_table
from rowpost.deploy.scripts import Script, ScriptSet, Templates, hash_text
from rowpost.deploy.sql_text import SqlTextError, expand, render, split_batches
from rowpost.errors import DeployError

__all__ = ["Rendering", "ScriptStep"]


@dataclass(frozen=True)
class ScriptStep:
    """One script as it runs: rendered, with the object that it makes, and the entry it belongs to, by title.

    `template` is the text before the entry's names were filled in; None of what every database has once.
    """

    script_name: str
    kind: str
    text: str
    object_kind: str | None = None
    object_name: str | None = None
    owner: str | None = None
    template: str | None = field(default=None, compare=False, repr=False)

    @property
    def title(self) -> str:
        """Its name in lists of changes."""
        return self.script_name

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


class Rendering:
    """Renders a release's scripts.

    Args:
        scripts: the release's.
        features: the features whose procedures are made; None for those of all.
    """

    def __init__(self, scripts: ScriptSet, features: Collection[str] | None = None) -> None:
        self._scripts, self._contract, self._dialect = scripts, scripts.contract, dialect_for(scripts.engine)
        self._features = scripts.contract.features.keys() if features is None else features
        self._fragments = contract_fragments(scripts.contract, scripts.engine, features)

    def shared(self) -> list[ScriptStep]:
        """Return the steps of what every database has: tables, procedures, and the procedures of the default table of
        subscriptions.
        """
        wanted, feature_of = {CORE, *self._features}, self._contract.feature_of
        steps = [self._of_database(each) for each in self._scripts.database if feature_of(each.name) in wanted]
        return steps + self._procedures(default_table(self._scripts.engine), None)

    def grants(self) -> list[ScriptStep]:
        """Return the steps of the rights on what every database has, and of the roles."""
        wanted = [self._scripts.grants, self._scripts.roles if ROLES in self._features else None]
        return [
            ScriptStep(each.name, each.kind, expand(each.text, self._fragments)) for each in wanted if each is not None
        ]

    def schema(self, name: str) -> list[ScriptStep]:
        """Return the step of a schema; none of dbo, which every database of SQL Server has. Raises DeployError."""
        script = self._scripts.schema
        if script is None or (self._dialect.name, name) == ("sqlserver", "dbo"):
            return []
        text = self._render(script, {"schema_name": name})
        return [ScriptStep(f"{script.name}:{name}", script.kind, text, "schema", self._dialect.quote(name))]

    def _of_database(self, script: Script) -> ScriptStep:
        text = expand(script.text, self._fragments)
        kind, name = ("table", script.table) if script.kind == "once" else ("procedure", script.stem)
        if name is None:
            return ScriptStep(script.name, script.kind, text)
        return ScriptStep(script.name, script.kind, text, kind, f"rowpost.{self._dialect.quote(name)}")

    def steps_of(self, entry: Rendered) -> list[ScriptStep]:
        """Return the steps of an entry: its tables, its trigger and its procedures, without its grants.

        Raises DeployError.
        """
        names = entry.placeholders(self._dialect)
        made = entry.objects(self._dialect, names)
        tables = [
            self._of_entry(each, entry, *made[each.stem], entry.title)
            for each in self._templates(entry).tables
            if each.stem in made
        ]
        return tables + self._procedures(entry, entry.title)

    def _procedures(self, entry: Rendered, owner: str | None) -> list[ScriptStep]:
        wanted = {each.name for each in entry.procedures(self._contract, self._features)}
        return [
            self._of_entry(each, entry, "procedure", self._object(each.stem, entry), owner)
            for each in self._templates(entry).procedures
            if each.stem in wanted or each.stem.startswith("_")
        ]

    def grants_of(self, entry: Rendered) -> list[ScriptStep]:
        """Return the steps of the rights on an entry's objects. Raises DeployError."""
        procedures = entry.procedures(self._contract, self._features)
        granted = {
            "procedure_grants": role_grants(self._scripts.engine, procedures),
            "public_revokes": public_revokes(procedures),
        }
        return [
            self._of_entry(Script(each.name, expand(each.text, granted)), entry, owner=entry.title)
            for each in self._templates(entry).grants
            if self._contract.feature_of(each.name) in (CORE, *self._features)
        ]

    def _of_entry(
        self,
        script: Script,
        entry: Rendered,
        object_kind: str | None = None,
        object_name: str | None = None,
        owner: str | None = None,
    ) -> ScriptStep:
        names = entry.placeholders(self._dialect)
        text, template = self._render(script, names), script.text
        if "/*, Recoverable */" in template:
            elsewhere = isinstance(entry, QueueEntry) and entry.catalog_name is not None
            text += self._name_recoverable(text, names["queue_table"], elsewhere)
            template += self._name_recoverable(template, "{queue_table}", elsewhere)
        name = f"{script.name}:{entry.key}"
        return ScriptStep(name, script.kind, text, object_kind, object_name, owner, template)

    def _name_recoverable(self, text: str, table: str, elsewhere: bool) -> str:
        return name_recoverable(split_batches(text, self._dialect.name)[-1].text, table, elsewhere)

    def removal(self, entry: Rendered, stem: str, **names: str) -> Script:
        """Return the script of this name that removes something of an entry. Raises DeployError."""
        script = self._templates(entry).find_removal(stem)
        whole = Script(script.name, expand(script.text, self._fragments))
        return Script(f"{script.name}:{entry.key}", self._render(whole, entry.placeholders(self._dialect) | names))

    def _templates(self, entry: Rendered) -> Templates:
        kinds: dict[type[Rendered], Templates] = {
            QueueEntry: self._scripts.queue,
            SagaEntry: self._scripts.saga,
            SubscriptionEntry: self._scripts.subscription,
        }
        return kinds[type(entry)]

    def _object(self, stem: str, entry: Rendered) -> str:
        return f"rowpost.{self._dialect.quote(f'{stem}:{entry.key}')}"

    def _render(self, script: Script, names: dict[str, str]) -> str:
        try:
            return render(script.text, names, self._dialect.name)
        except SqlTextError as error:
            raise DeployError(f"{script.name}: line {error.line}: {error.problem}") from error
