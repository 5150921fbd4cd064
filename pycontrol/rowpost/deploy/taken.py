"""Names that are taken: tables that a deployment is about to make or adopt, and something else that stands under their
names.

check_not_taken(database, diff)     before the first change
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rowpost.database.connection import Connection
from rowpost.database.dialects.relations import RELATIONS, SCHEMAS
from rowpost.deploy.diff import PlanDiff
from rowpost.deploy.entries import QueueEntry, SubscriptionEntry
from rowpost.deploy.steps import ScriptStep
from rowpost.errors import DeployError, QueueNameConflict
from rowpost.wire.address import Address

__all__ = ["check_not_taken", "dotted"]

_ADVICE = (
    "Nothing was changed. Give the queue, saga or subscriptions another name, or rename what is there; a table that "
    "NServiceBus made is taken as it stands."
)

Named = TypeVar("Named", bound=QueueEntry | SubscriptionEntry)


@dataclass(frozen=True)
class _Columns:
    """What a table must have: each column with the types that it may have.

    And which further columns each insert fills.
    """

    types: Mapping[str, tuple[str, ...]]
    also_filled: tuple[str, ...] = ()


# The first type of each is the one that rowpost makes. The others are read and written as well; NServiceBus makes or
# made some of them.
_TEXT = {"postgresql": ("text", "character varying"), "sqlserver": ("nvarchar", "varchar")}
_BYTES = {"postgresql": ("bytea",), "sqlserver": ("varbinary",)}
_NUMBER = {"postgresql": ("bigint", "integer"), "sqlserver": ("bigint", "int")}
_NUMBERED = ("seq", "RowVersion")  # the server must fill them
_ID = {"postgresql": ("uuid",), "sqlserver": ("uniqueidentifier",)}
_EXPIRES = {"postgresql": ("timestamp without time zone",), "sqlserver": ("datetime", "datetime2")}
_DUE = {"postgresql": ("timestamp with time zone",), "sqlserver": ("datetime", "datetime2")}
#: what each lease fills
_LEASED = ("Owner", "LeasedAt", "Due", "owner", "leased_at", "due")
_JSON = {"postgresql": ("jsonb",), "sqlserver": ("nvarchar", "varchar")}
_SAGA: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Id": _ID,
    "Metadata": _TEXT,
    "Data": _JSON,
    "Concurrency": {"postgresql": ("integer",), "sqlserver": ("int",)},
}


def _columns(engine: str) -> dict[str, _Columns]:
    def table(columns: Mapping[str, Mapping[str, tuple[str, ...]]], *also_filled: str) -> _Columns:
        return _Columns({name: types[engine] for name, types in columns.items()}, also_filled)

    if engine == "postgresql":
        queue = table({"id": _ID, "expires": _EXPIRES, "headers": _TEXT, "body": _BYTES, "seq": _NUMBER})
        delayed = table({"headers": _TEXT, "body": _BYTES, "due": _DUE})
        leased = table(
            {"token": _ID, "id": _ID, "expires": _EXPIRES, "headers": _TEXT, "body": _BYTES, "seq": _NUMBER}, *_LEASED
        )
        subscription = table({"queueaddress": _TEXT, "endpoint": _TEXT, "topic": _TEXT})
    else:
        # an INSERT names Recoverable if it has no default
        queue = table(
            {"Id": _ID, "Expires": _EXPIRES, "Headers": _TEXT, "Body": _BYTES, "RowVersion": _NUMBER}, "Recoverable"
        )
        delayed = table({"Headers": _TEXT, "Body": _BYTES, "Due": _DUE, "RowVersion": _NUMBER})
        leased = table(
            {"Token": _ID, "Id": _ID, "Expires": _EXPIRES, "Headers": _TEXT, "Body": _BYTES, "RowVersion": _NUMBER},
            *_LEASED,
        )
        subscription = table({"QueueAddress": _TEXT, "Endpoint": _TEXT, "Topic": _TEXT})
    saga = table(_SAGA, "PersistenceVersion", "SagaTypeVersion")
    return {
        "queue/create.sql": queue,
        "queue/create_delayed.sql": delayed,
        "queue/create_leased.sql": leased,
        "subscription/create.sql": subscription,
        "saga/create.sql": saga,
    }


_COLUMNS = {engine: _columns(engine) for engine in ("postgresql", "sqlserver")}


def check_not_taken(database: Connection, diff: PlanDiff) -> None:
    """Check that what stands under the names of new tables can be used as such a table.

    One round trip if there are new tables.

    Raises:
        DeployError: it cannot.
            Or the name of a new table of subscriptions is a schema of the database, a dot, and the name that was meant.
        QueueNameConflict: two entries of the plan want one table.
    """
    new = [
        change.item
        for change in diff.changes
        if change.state == "added" and isinstance(change.item, ScriptStep) and _kind(change.item)
    ]
    if not new:
        return
    _check_dots(database, diff)
    for found, error in ((_shared(diff, new), QueueNameConflict), (_unfit(database, new), DeployError)):
        if reasons := " ".join(found):
            raise error(f"{reasons} {_ADVICE}")


def _check_dots(database: Connection, diff: PlanDiff) -> None:
    """Refuse a new table of subscriptions with a dot in its name, such as nsb.SubscriptionRouting, whose first part is
    a schema.
    """
    new = (change.item for change in diff.changes if change.state == "added")
    entries = [each for each in new if isinstance(each, SubscriptionEntry) and "." in each.table_name]
    for entry, meant in dotted(database, entries):
        raise DeployError(
            f"The table of subscriptions {entry.name!r} would have a dot in its name, in the schema "
            f"{entry.schema_name}, and the database has a schema {meant.schema}. Nothing was changed. Write "
            f"subscription_table: {meant.format()}"
        )


def dotted(database: Connection, entries: Sequence[Named]) -> Iterator[tuple[Named, Address]]:
    """Yield those of the entries whose table's name is a schema of the database, a dot, and more, with the address that
    was meant.

    One round trip if there are entries.
    """
    if not entries:
        return
    with database.translated():
        rows = database.dialect.script(database.driver_connection, SCHEMAS[database.engine])
    schemas = {_same(database.engine, name): name for (name,) in rows}
    for entry in entries:
        first, dot, rest = entry.table_name.partition(".")
        if dot and rest and (schema := schemas.get(_same(database.engine, first))):
            yield entry, Address(rest, schema)


def _kind(step: ScriptStep) -> str:
    """Return the script of the table, such as queue/create.sql; empty for other steps."""
    script = step.script_name.partition(":")[0].removeprefix("tables/")
    return script if step.object_kind == "table" and script in _COLUMNS["postgresql"] else ""


def _shared(diff: PlanDiff, new: list[ScriptStep]) -> Iterator[str]:
    owners: dict[str, ScriptStep] = {}
    for change in diff.changes:
        step = change.item
        if not isinstance(step, ScriptStep) or not _kind(step):
            continue
        other = owners.setdefault(_same(diff.plan.engine, str(step.object_name)), step)
        if other.owner != step.owner and (step in new or other in new):
            yield (
                f"The {other.owner} and the {step.owner} both want the table {step.object_name}: "
                f"one for {_use(other)}, one for {_use(step)}."
            )


def _same(engine: str, name: str) -> str:
    return name.casefold() if engine == "sqlserver" else name


def _use(step: ScriptStep) -> str:
    return {
        "queue/create.sql": "messages",
        "queue/create_delayed.sql": "delayed messages",
        "queue/create_leased.sql": "leased messages",
        "saga/create.sql": "sagas",
    }.get(_kind(step), "subscriptions")


def _unfit(database: Connection, new: list[ScriptStep]) -> Iterator[str]:
    names = database.dialect.literal(json.dumps(sorted({str(step.object_name) for step in new}), ensure_ascii=False))
    with database.translated():
        rows = database.dialect.script(database.driver_connection, RELATIONS[database.engine].replace("{names}", names))
    for step in new:
        there = [_Column(*row) for name, *row in rows if name == step.object_name]
        if there and (why := _reason(there, _COLUMNS[database.engine][_kind(step)], database.engine)):
            yield f"The {step.owner} cannot have the table {step.object_name} for {_use(step)}: {why}."


@dataclass(frozen=True)
class _Column:
    """A column of a relation that is there.

    `relation` is empty if that is a table; `name` and `type` are None if it has no column.
    """

    relation: str
    name: str | None
    type: str | None
    mandatory: bool


def _reason(there: list[_Column], columns: _Columns, engine: str) -> str:
    """Why a relation is no such table; empty if it is one."""
    if what := there[0].relation:
        return f"{'an' if what[0] in 'aeiou' else 'a'} {what} has that name"
    present = {_same(engine, each.name): each for each in there if each.name is not None}
    missing = [name for name in columns.types if _same(engine, name) not in present]
    if missing:
        return f"another table has that name, which has no column {', '.join(missing)}"
    for name, types in columns.types.items():
        if (type_ := present[_same(engine, name)].type) not in types:
            return f"the column {name} of the table that is there is of the type {type_}, and {types[0]} is needed"
    filled = {_same(engine, name) for name in (*columns.types, *columns.also_filled) if name not in _NUMBERED}
    mandatory = [each.name or "" for key, each in present.items() if each.mandatory and key not in filled]
    if mandatory:
        return (
            f"the table that is there does not allow a null in {', '.join(mandatory)}, which has no default, so that "
            "every insert would fail"
        )
    return ""
