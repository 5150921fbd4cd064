"""Propose schemas of message types from archived bodies, and report how bodies differ from the schemas that are kept.

`propose` writes a file for each type that has none. `check` returns a `SchemaChange` for each field that is new, never
seen, of another type or missing, for broken bodies, and for types without a schema.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from rowpost.spark.bodies.fitting import ELEMENT, ENTRY
from rowpost.spark.bodies.proposing import FieldObservation, changes, propose, shapes
from rowpost.spark.bodies.schema_files import Schema, as_ddl, file_name, named, places, type_of
from rowpost.spark.jobs.retain import pattern

__all__ = ["Proposal", "SchemaChange", "check", "kept", "of_types", "proposals", "write"]

_SEEN = T.ArrayType(
    T.StructType().add("path", T.StringType()).add("kind", T.StringType()).add("place", T.IntegerType())
)
_WORDS = {"new": "new field", "changed": "changed type", "missing": "missing", "broken": "broken body"}


@dataclass(frozen=True)
class Proposal:
    """The text of a new schema file.

    `unknown` are fields that were always null or empty, `broken` is the number of bodies that cannot be read.
    """

    message_type: str
    text: str
    fields: int
    messages: int
    broken: int
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class SchemaChange:
    """A difference between bodies and a schema: in how many of how many messages, and the id of one of them."""

    kind: str
    message_type: str | None
    field: str
    messages: int
    of: int
    example: str | None = None
    expected: str | None = None


def of_types(df: DataFrame, glob: str) -> DataFrame:
    """Return the messages whose type matches a pattern, in which * matches any text."""
    return df if glob == "*" else df.where(F.col("message_type").rlike(pattern(glob)))


def observed(df: DataFrame, schemas: Mapping[str, Schema] | None = None) -> DataFrame:
    """Count message_type, path, kind (with schemas, that of `changes`), messages, an example's id and place."""

    def observe(bodies: pa.Array, content_types: pa.Array, types: pa.Array) -> pa.Array:
        rows = zip(bodies.to_pylist(), content_types.to_pylist(), types.to_pylist(), strict=True)
        if schemas is None:
            return pa.array([shapes(*row) for row in rows], to_arrow_type(_SEEN))
        return pa.array(
            [changes(body, kind, schemas[name]) if name in schemas else [] for body, kind, name in rows],
            to_arrow_type(_SEEN),
        )

    function = F.arrow_udf(observe, _SEEN)  # type: ignore[call-overload]  # its annotation forgets arrays of structs
    found = F.explode(function("body", "content_type", "message_type"))
    rows = df.select("message_type", "message_id", found.alias("found")).select("message_type", "message_id", "found.*")
    return rows.groupBy("message_type", "path", "kind").agg(
        F.count(F.lit(1)).alias("messages"), F.min("message_id").alias("example"), F.min("place").alias("place")
    )


def proposals(df: DataFrame, known: Iterable[str] = ()) -> list[Proposal]:
    """Propose a schema for each message type that is not known, ordered by type."""
    wanted = df.where(F.col("message_type").isNotNull() & ~F.coalesce(F.col("message_type").isin(*known), F.lit(False)))
    seen = _by_type(observed(wanted))
    return [_proposal(name, seen[name], each.messages) for name, each in sorted(_totals(wanted).items())]


def _proposal(name: str, rows: Sequence[Row], messages: int) -> Proposal:
    broken = sum(row.messages for row in rows if row.kind == "broken")
    fields, unknown = propose(
        FieldObservation(tuple(json.loads(row.path)), row.kind, row.messages, row.place) for row in rows
    )
    text = as_ddl(fields) + "".join(f"-- {each}: null or empty in every message\n" for each in unknown)
    return Proposal(name, text, len(fields), messages, broken, tuple(unknown))


def kept(folder: Path) -> set[str]:
    """Return the types that have a file in a folder, which may not exist."""
    return {type_of(path.stem) for path in folder.glob("*") if path.suffix in (".ddl", ".avsc")}


def write(folder: Path, found: Sequence[Proposal]) -> list[Path]:
    """Write the files of proposals.

    A type without a readable body, and a file that exists, are left out. Returns the paths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for each in found:
        path = folder / f"{file_name(each.message_type)}.ddl"
        if each.broken < each.messages and not path.exists():
            path.write_text(each.text, encoding="utf-8")
            written.append(path)
    return written


def check(df: DataFrame, schemas: Mapping[str, Schema]) -> list[SchemaChange]:
    """Compare the bodies with the schemas, and return the changes, ordered by type and field."""
    totals = _totals(df)
    rows = _by_type(observed(df.where(F.col("message_type").isin(*schemas)), schemas))
    new = [(name, each) for name, each in totals.items() if name is not None and name not in schemas]
    found = [SchemaChange("no schema", name, "", each.messages, each.messages, each.example) for name, each in new]
    for name in totals.keys() & schemas.keys():
        found += _changes(schemas[name], rows[name], totals[name].messages)
    return sorted(found, key=lambda each: (each.message_type or "", each.kind == "no schema", each.field, each.kind))


def _totals(df: DataFrame) -> dict[Any, Row]:
    """Count the messages of each type, with the id of one of them as `example`."""
    counted = df.groupBy("message_type").agg(F.count(F.lit(1)).alias("messages"), F.min("message_id").alias("example"))
    return {row.message_type: row for row in counted.collect()}


def _by_type(df: DataFrame) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in df.collect():
        found[row.message_type].append(row)
    return found


def _changes(schema: Schema, rows: Sequence[Row], of: int) -> list[SchemaChange]:
    types = {
        place: kind.simpleString().upper()
        for place, kind in places(schema.fields)
        if place and place[-1] not in (ELEMENT, ENTRY)
    }
    at = [(tuple(json.loads(row.path)), row) for row in rows]
    seen, wrong = ({place for place, row in at if row.kind == kind} for kind in ("seen", "changed"))
    never = [place for place in types if place not in seen | wrong and (len(place) == 1 or place[:-1] in seen)]
    name = schema.message_type
    differing = [
        SchemaChange(_WORDS[row.kind], name, named(place), row.messages, of, row.example, types.get(place))
        for place, row in at
        if row.kind != "seen"
    ]
    return differing + [SchemaChange("never seen", name, named(place), 0, of, None, types[place]) for place in never]
