"""Read sql/contract.yml: what every procedure takes, returns and can raise.

`load_contract` returns the `Contract` that this program calls by, `read_contract` that of any sql folder, such as an
earlier release's. Its `Procedure`s describe parameters and result columns as `Parameter`s. The file is decoded strictly
by msgspec: an unknown key, a missing one or a value of another type is a ContractError.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache, cached_property
from pathlib import Path
from threading import RLock
from typing import Any, Literal, TypeVar

import msgspec
import yaml

from rowpost.database.sql_folder import sql_folder
from rowpost.errors import ContractError
from rowpost.wire.address import TEMPLATE_NAME_LIMIT

__all__ = [
    "CORE", "FEATURES_OF_QUEUES", "ROLES", "CatalogueEntry", "Contract", "Feature", "Parameter", "Procedure",
    "load_contract", "parse_contract", "read_contract",
]  # fmt: skip

#: the feature of all that every deployment has
CORE = "core"
#: the features that single queues have, and not a whole database
FEATURES_OF_QUEUES = frozenset({"delayed", "lease", "wake_up"})
#: the feature of the cluster's roles on PostgreSQL, which an environment declares by its key `roles`
ROLES = "roles"

T = TypeVar("T")
# msgspec analyses a class when it first meets it, and the process crashes if two threads do so at once.
_ANALYSIS = RLock()

Side = Literal["receive", "send", "operate", "read", "content", "deploy"]
Role = Literal["endpoint", "operator", "reader", "body_reader"]


class Parameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One parameter or result column. `engines` is empty if every engine has it."""

    name: str
    type: Literal[
        "string", "strings", "text", "binary", "uuid", "integer", "bigint", "boolean", "timestamp", "messages"
    ]
    optional: bool = False
    engines: tuple[Literal["postgresql", "sqlserver"], ...] = ()
    doc: str = ""


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One procedure as it stands in the file, below its path."""

    purpose: str
    scope: Literal["queue", "saga", "database"]
    queues: Literal["own", "all", "delayed", "lease"] = "own"
    sagas: Literal["own", "transitional"] = "own"
    side: Side
    acts_for: str | None = None
    open: str = ""
    feature: str = CORE
    roles: tuple[Role, ...] | None = None
    parameters: tuple[Parameter, ...]
    result: tuple[Parameter, ...]
    ordered_by: str | None = None
    errors: tuple[int, ...] = ()
    differences: dict[Literal["postgresql", "sqlserver"], str] = {}


class Procedure(_Entry, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One procedure of the contract.

    Attributes:
        folder: its folder.
        name: its name.
        purpose: what it does, in one sentence.
        scope: "queue" or "saga" (rendered once for each of them), or "database".
        queues: which queues get a procedure of scope "queue": "own", "all" (external ones too), "delayed" (own queues
            that have a table of delayed messages) or "lease" (own queues that have a table of leases).
        sagas: which sagas get a procedure of scope "saga": "own" (all of them) or "transitional" (those that move to
            another correlation).
        side: what it is for: receive, send, operate, read, content (bodies and states of sagas) or deploy.
        acts_for: the parameter that names the queue for which the caller must be allowed to receive; None if there is
            none.
        open: why an endpoint's login may call it without that.
        feature: which feature needs it.
        roles: the database roles that may execute it. A template is never granted to the role endpoint.
        parameters: in order.
        result: its columns, in order; empty if it returns no rows.
        ordered_by: the column by which callers sort the rows, if the statement promises no order.
        errors: the numbers of the errors that it can raise.
        differences: by engine, how its behaviour differs there.
    """

    folder: str
    name: str
    roles: tuple[Role, ...]

    def parameters_on(self, engine: str) -> tuple[Parameter, ...]:
        """Return the parameters that this engine has, in order."""
        return tuple(p for p in self.parameters if not p.engines or engine in p.engines)


class CatalogueEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One error that procedures raise by its number."""

    name: str
    meaning: str


class Feature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an environment declares to have its procedures and tables.

    On the engines of `always` every environment has it.
    """

    purpose: str
    always: tuple[Literal["postgresql", "sqlserver"], ...] = ()


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the table of one script is for. `engines` is empty if every engine has the script."""

    purpose: str
    feature: str = CORE
    engines: tuple[Literal["postgresql", "sqlserver"], ...] = ()


class Contract(msgspec.Struct, frozen=True, dict=True):
    """All procedures, the catalogue of errors by number, and the features.

    An earlier release's may have no feature but the core.

    `tables` are the scripts of tables by their paths below `tables`, without `.sql`.
    """

    procedures: tuple[Procedure, ...]
    errors: dict[int, CatalogueEntry]
    features: dict[str, Feature] = {}
    tables: dict[str, Table] = {}

    def feature_of(self, script_name: str) -> str:
        """Return the feature that a script belongs to, by its name in the journal.

        >>> load_contract().feature_of("procedures/stream/read_range.sql:Sales")
        'spark'
        """
        found = self._described(script_name)
        return CORE if found is None else found.feature

    def purpose_of(self, script_name: str) -> str:
        """Return what a script's object is for, in one sentence; an empty text if the contract does not say so."""
        found = self._described(script_name)
        return "" if found is None else found.purpose

    def _described(self, script_name: str) -> Procedure | Table | None:
        kind, _, path = script_name.partition(".sql")[0].partition("/")
        if kind == "tables":
            return self.tables.get(path)
        return self._by_path.get(path)

    @cached_property
    def _by_path(self) -> dict[str, Procedure]:
        return {f"{each.folder}/{each.name}": each for each in self.procedures}

    def find(self, name: str, scope: str) -> Procedure:
        """Return the procedure of that name and scope ("queue", "saga" or "database").

        Raises:
            ContractError: there is none.
        """
        for procedure in self.procedures:
            if procedure.name == name and procedure.scope == scope:
                return procedure
        raise ContractError(f"The contract has no procedure {name!r} for a {scope}. See sql/contract.yml.")

    def find_template(self, name: str) -> Procedure:
        """Return the procedure of that name that is rendered for a queue or a saga. Raises ContractError."""
        return self.find(name, "saga" if any(p.name == name for p in self.saga_templates()) else "queue")

    def saga_templates(self, transitional: bool = True) -> tuple[Procedure, ...]:
        """Return the procedures of one type of saga; `transitional` says whether it moves to another correlation."""
        groups = {"own", "transitional"} if transitional else {"own"}
        return tuple(p for p in self.procedures if p.scope == "saga" and p.sagas in groups)

    def templates(
        self, kind: str = "own", delayed: bool = True, features: Collection[str] | None = None, *, lease: bool = True
    ) -> tuple[Procedure, ...]:
        """Return the procedures of one queue.

        Args:
            kind: an "external" queue has only those that send, and those with which operators read and remove single
                messages.
            delayed: whether the queue has a table of delayed messages.
            features: only procedures of these; None for all.
            lease: whether the queue has a table of leases.
        """
        groups = {"all"}
        if kind != "external":
            groups |= {"own"} | ({"delayed"} if delayed else set()) | ({"lease"} if lease else set())
        known = self.features if features is None else {*features, "delayed", "lease"}
        return tuple(
            p
            for p in self.procedures
            if p.scope == "queue" and p.queues in groups and (p.feature in known or p.feature == CORE)
        )


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. Procedures are decoded one by one, so that an error can name the procedure."""

    version: int
    roles: dict[Side, tuple[Role, ...]]
    features: dict[str, Feature] = {}
    tables: dict[str, Table] = {}
    errors: dict[int, CatalogueEntry]
    procedures: dict[str, dict[str, Any]]


def load_contract() -> Contract:
    """Read sql/contract.yml, once per process; threads wait for the first of them.

    Raises:
        ContractError: the file does not have the contract's form; the message names the file and the key.
    """
    with _ANALYSIS:
        return _load()


@cache
def _load() -> Contract:
    return read_contract(sql_folder())


def read_contract(folder: Path) -> Contract:
    """Read the contract of a sql folder. Raises ContractError."""
    try:
        return parse_contract((folder / "contract.yml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ContractError(f"{folder / 'contract.yml'}: cannot be read: {error}") from error


def parse_contract(text: str) -> Contract:
    """Decode the text of a contract. Raises ContractError."""
    try:
        values = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 -- both are safe loaders
    except yaml.YAMLError as error:
        raise ContractError(
            f"sql/contract.yml: is not YAML: {error}. Correct the file, or install rowpost again."
        ) from error
    document = _decode("", values, _Document)
    found = []
    for path, entry in document.procedures.items():
        folder, _, name = path.partition("/")
        checked = _decode(path, entry, _Entry)  # `folder` and `name` are the path's, and not allowed below it
        if checked.feature != CORE and checked.feature not in document.features:
            raise ContractError(
                f"sql/contract.yml: procedures.{path}: the feature {checked.feature!r} is not listed below features."
            )
        if checked.scope != "database" and len(name) > TEMPLATE_NAME_LIMIT:
            raise ContractError(
                f"sql/contract.yml: procedures.{path}: the name has {len(name)} characters, and rendered names have "
                f"room for {TEMPLATE_NAME_LIMIT}. Choose a shorter name."
            )
        wanted = document.roles.get(checked.side, ()) if checked.roles is None else checked.roles
        roles = [role for role in wanted if checked.scope == "database" or role != "endpoint"]
        found.append(_decode(path, {**entry, "folder": folder, "name": name, "roles": roles}, Procedure))
    return Contract(tuple(found), document.errors, document.features, document.tables)


def _decode(path: str, values: Any, cls: type[T]) -> T:
    try:
        with _ANALYSIS:
            return msgspec.convert(values, cls)
    except msgspec.ValidationError as error:
        where = f"procedures.{path}" if path else "the top level"
        raise ContractError(
            f"sql/contract.yml: {where}: {error}. Correct the file, or install rowpost again."
        ) from error
