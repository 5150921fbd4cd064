"""sql/contract.yml as values: what every procedure takes, returns and is allowed to raise."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from rowpost.database.sql_folder import sql_folder
from rowpost.errors import ContractError

__all__ = ["Contract", "Parameter", "Procedure", "load_contract"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter or result column. `engines` is empty where every engine has it."""

    name: str
    type: str
    optional: bool = False
    engines: tuple[str, ...] = ()
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Procedure:
    """One procedure of the contract.

    `feature` is its folder; `scope` is "queue" or "saga" (rendered once for each) or "database"; `queues` says whether
    external queues have it too ("all") or not ("own"), and "transitional" that only sagas have it that move to another
    correlation; `side` says what it is for; `roles` are the database roles that may execute it.
    """

    feature: str
    name: str
    purpose: str
    scope: str
    queues: str
    side: str
    roles: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    result: tuple[Parameter, ...]
    ordered_by: str | None
    errors: tuple[int, ...]
    differences: dict[str, str]

    def parameters_on(self, engine: str) -> tuple[Parameter, ...]:
        """The parameters that this engine has, in order."""
        return tuple(p for p in self.parameters if not p.engines or engine in p.engines)


@dataclass(frozen=True, slots=True)
class Contract:
    """All procedures, by scope and name, and the catalogue of errors."""

    procedures: tuple[Procedure, ...]
    errors: dict[int, dict[str, str]]

    def find(self, name: str, scope: str) -> Procedure:
        """The procedure of that name and scope ("queue", "saga" or "database").

        Raises:
            ContractError: there is none.
        """
        for procedure in self.procedures:
            if procedure.name == name and procedure.scope == scope:
                return procedure
        raise ContractError(f"The contract has no procedure {name!r} for a {scope}. See sql/contract.yml.")

    def find_template(self, name: str) -> Procedure:
        """The procedure of that name that is rendered for something, whatever it is. Raises ContractError."""
        return self.find(name, "saga" if any(p.name == name for p in self.saga_templates()) else "queue")

    def saga_templates(self, transitional: bool = True) -> tuple[Procedure, ...]:
        """The procedures that a type of saga gets."""
        groups = {"own", "transitional"} if transitional else {"own"}
        return tuple(p for p in self.procedures if p.scope == "saga" and p.queues in groups)

    def templates(self, kind: str = "own", delayed: bool = True) -> tuple[Procedure, ...]:
        """The procedures that a queue gets: an external one those that send, one without a delayed table none for that."""
        groups = {"all"} if kind == "external" else {"all", "own", "delayed"} if delayed else {"all", "own"}
        return tuple(p for p in self.procedures if p.scope == "queue" and p.queues in groups)


def _parameter(entry: dict[str, Any]) -> Parameter:
    return Parameter(
        name=entry["name"],
        type=entry["type"],
        optional=entry.get("optional", False),
        engines=tuple(entry.get("engines", ())),
        doc=entry.get("doc", ""),
    )


def _procedure(path: str, entry: dict[str, Any], roles: dict[str, list[str]]) -> Procedure:
    feature, name = path.split("/")
    wanted = entry.get("roles", roles[entry["side"]])
    return Procedure(
        feature=feature,
        name=name,
        purpose=entry["purpose"],
        scope=entry["scope"],
        queues=entry.get("queues") or entry.get("sagas", "own"),
        side=entry["side"],
        roles=tuple(role for role in wanted if entry["scope"] == "database" or role != "endpoint"),
        parameters=tuple(_parameter(p) for p in entry["parameters"]),
        result=tuple(_parameter(c) for c in entry["result"]),
        ordered_by=entry.get("ordered_by"),
        errors=tuple(entry.get("errors", ())),
        differences=entry.get("differences", {}),
    )


@cache
def load_contract() -> Contract:
    """Reads sql/contract.yml, once per process."""
    text = (sql_folder() / "contract.yml").read_text(encoding="utf-8")
    document = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 -- both are safe loaders
    return Contract(
        procedures=tuple(_procedure(path, entry, document["roles"]) for path, entry in document["procedures"].items()),
        errors=document["errors"],
    )
