"""Propose schemas of message types from archived bodies, and report how bodies differ from the schemas that are kept.

`propose` writes a file for each type that has none. `check` returns a `Change` for each field that is new, never seen, of
another type or missing, for broken bodies, and for types without a schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rowpost.spark.archive.policy import pattern
from rowpost.spark.bodies.fitting import ELEMENT, ENTRY
from rowpost.spark.bodies.observing import changes, shapes
from rowpost.spark.bodies.proposing import Observation, propose
from rowpost.spark.bodies.schema_files import Schema, as_ddl, file_name, type_of

__all__ = ["Change", "Proposal", "check", "kept", "observed", "of_types", "proposals", "write"]

_SEEN = T.ArrayType(
    T.StructType([T.StructField("path", T.StringType()), T.StructField("kind", T.StringType()), T.StructField("place", T.IntegerType())])
)
_ARROW = pa.list_(pa.struct([("path", pa.string()), ("kind", pa.string()), ("place", pa.int32())]))
_WORDS = {"new": "new field", "changed": "changed type", "missing": "missing", "broken": "broken body"}


@dataclass(frozen=True)
class Proposal:
    """The text of a new schema file. `unknown` are fields that were always null or empty, `broken` is the number of bodies that cannot be read."""

    message_type: str
    text: str
    fields: int
    messages: int
    broken: int
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
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
    """Count what bodies have: message_type, path, kind, messages, example (a message id), place.

    Without schemas, `kind` is that of the value at the path; with schemas, see observing.changes.
    """

    def observe(bodies: pa.Array, content_types: pa.Array, types: pa.Array) -> pa.Array:
        rows: list[list[tuple[str, str, int]]] = []
        for body, content_type, name in zip(bodies.to_pylist(), content_types.to_pylist(), types.to_pylist(), strict=True):
            if schemas is None:
                rows.append(shapes(body, content_type, name))
            else:
                rows.append([(path, kind, 0) for path, kind in changes(body, content_type, schemas[name])] if name in schemas else [])
        return pa.array([[dict(zip(("path", "kind", "place"), each, strict=True)) for each in row] for row in rows], _ARROW)

    function = F.arrow_udf(observe, _SEEN)  # type: ignore[call-overload]  # its annotation forgets arrays of structs
    found = F.explode(function("body", "content_type", "message_type"))
    rows = df.select("message_type", "message_id", found.alias("found")).select("message_type", "message_id", "found.*")
    return rows.groupBy("message_type", "path", "kind").agg(
        F.count(F.lit(1)).alias("messages"), F.min("message_id").alias("example"), F.min("place").alias("place")
    )


def proposals(df: DataFrame, known: Iterable[str] = ()) -> list[Proposal]:
    """Propose a schema for each message type that is not known, ordered by type."""
    wanted = df.where(F.col("message_type").isNotNull() & ~F.coalesce(F.col("message_type").isin(*known), F.lit(False)))
    totals = {row.message_type: row["count"] for row in wanted.groupBy("message_type").count().collect()}
    seen: dict[str, list[Any]] = {name: [] for name in sorted(totals)}
    for row in observed(wanted).collect():
        seen[row.message_type].append(row)
    return [_proposal(name, rows, totals[name]) for name, rows in seen.items()]


def _proposal(name: str, rows: Sequence[Any], messages: int) -> Proposal:
    broken = sum(row.messages for row in rows if row.kind == "broken")
    fields, unknown = propose(Observation(tuple(json.loads(row.path)), row.kind, row.messages, row.place) for row in rows)
    text = as_ddl(fields) + "".join(f"-- {each}: null or empty in every message\n" for each in unknown)
    return Proposal(name, text, len(fields), messages, broken, tuple(unknown))


def kept(folder: Path) -> set[str]:
    """Return the types that have a file in a folder, which may not exist."""
    return {type_of(path.stem) for path in folder.glob("*") if path.suffix in (".ddl", ".avsc")}


def write(folder: Path, found: Sequence[Proposal]) -> list[Path]:
    """Write the files of proposals. A type without a readable body, and a file that exists, are left out. Returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for each in found:
        path = folder / f"{file_name(each.message_type)}.ddl"
        if each.broken < each.messages and not path.exists():
            path.write_text(each.text, encoding="utf-8")
            written.append(path)
    return written


def check(df: DataFrame, schemas: Mapping[str, Schema]) -> list[Change]:
    """Compare the bodies with the schemas, and return the changes, ordered by type and field."""
    totals = {row.message_type: (row.messages, row.example) for row in df.groupBy("message_type").agg(
        F.count(F.lit(1)).alias("messages"), F.min("message_id").alias("example")).collect()}  # fmt: skip
    rows: dict[str, list[Any]] = {name: [] for name in schemas}
    for row in observed(df.where(F.col("message_type").isin(*schemas)), schemas).collect():
        rows[row.message_type].append(row)
    found = [
        Change("no schema", name, "", number, number, example)
        for name, (number, example) in totals.items()
        if name is not None and name not in schemas
    ]
    for name, schema in schemas.items():
        if name in totals:
            found += _changes(schema, rows[name], totals[name][0])
    return sorted(found, key=lambda each: (each.message_type or "", each.kind == "no schema", each.field, each.kind))


def _changes(schema: Schema, rows: Sequence[Any], of: int) -> list[Change]:
    types = dict(_paths(schema.fields, ()))
    seen = {tuple(json.loads(row.path)) for row in rows if row.kind == "seen"}
    found = [
        Change(_WORDS[row.kind], schema.message_type, _spelled(json.loads(row.path)), row.messages, of, row.example, types.get(tuple(json.loads(row.path))))
        for row in rows if row.kind != "seen"
    ]  # fmt: skip
    unseen = [path for path in types if path not in seen and (len(path) == 1 or path[:-1] in seen)]
    wrong = {tuple(json.loads(row.path)) for row in rows if row.kind == "changed"}
    return found + [Change("never seen", schema.message_type, _spelled(path), 0, of, None, types[path]) for path in unseen if path not in wrong]


def _paths(kind: T.DataType, path: tuple[str | int, ...]) -> Iterable[tuple[tuple[str | int, ...], str]]:
    """Yield the paths of a type with their types as DDL. Elements of arrays and values of maps have none of their own."""
    if path and path[-1] not in (ELEMENT, ENTRY):
        yield path, kind.simpleString().upper()
    if isinstance(kind, T.StructType):
        for field in kind:
            yield from _paths(field.dataType, (*path, field.name))
    elif isinstance(kind, T.ArrayType):
        yield from _paths(kind.elementType, (*path, ELEMENT))
    elif isinstance(kind, T.MapType):
        yield from _paths(kind.valueType, (*path, ENTRY))


def _spelled(path: Sequence[str | int]) -> str:
    """Return a path as in a message: Lines[].Sku, Tags{}."""
    return "".join({ELEMENT: "[]", ENTRY: "{}"}.get(part, f".{part}") if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
