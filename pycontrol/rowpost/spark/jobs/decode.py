"""Turn the bodies of messages into typed columns, by message type, and write them to one Delta table for each type.

    schemas = read_schemas(Path("schemas"))
    decode(read_archive(spark, "archive/"), schemas)["Shop.PlaceOrder"].select("message_id", "OrderId", "_rescued")

`run` writes tables, which are folders of OUT, named by their types, and partitioned by queue and day as the archive is.
It reads the files that the archive has got since the last run, and adds the messages that a table does not have yet:
(queue, id, row_version) is the key of a message. A run that was killed, and one after a merge of the archive's files,
therefore doubles nothing. The archive remembers OUT in `_rowpost/copies`, so that `erase` and `retain` reach the
tables.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rowpost.archive.columns import PARTITIONS
from rowpost.archive.folder import ArchiveFolder
from rowpost.archive.maintenance_lock import maintenance_lock
from rowpost.archive.merging import AUTOMATIC_FILES, merge, small_files
from rowpost.archive.parts import NewFile
from rowpost.archive.table import ArchiveTable, DataFile, create_table, open_table
from rowpost.errors import SparkFailed
from rowpost.spark.archive.headers import parse_headers
from rowpost.spark.archive.records import remember_copy
from rowpost.spark.archive.rows import read_files, write_files
from rowpost.spark.archive.schemas import ARCHIVE, schema_of
from rowpost.spark.bodies.decoding import decode_batch, decoded_type
from rowpost.spark.bodies.fitting import Path
from rowpost.spark.bodies.schema_files import ERROR, RESCUED, Schema, folder_name, places
from rowpost.spark.describing import describing

__all__ = ["KEY", "ROW", "Decoded", "decode", "decode_type", "run", "sources", "undecoded"]

_DECODED = "_decoded"
#: The columns of an archive that each table of a type has, and those that identify a message.
ROW = ("message_id", "id", "row_version", "time_sent", "endpoint", *PARTITIONS)
KEY = ["queue", "id", "row_version"]
_NOT_KEPT = ("message_type", "content_type", "body")
_NEEDED = (*ROW, *_NOT_KEPT)
_STATE = "decoded.json"


def decode(df: DataFrame, schemas: Mapping[str, Schema]) -> dict[str, DataFrame]:
    """Return the messages of each type that has a schema, as `decode_type` does. Works on streams too."""
    return {name: decode_type(df, schema) for name, schema in schemas.items()}


def decode_type(df: DataFrame, schema: Schema, columns: T.StructType | None = None) -> DataFrame:
    """Return the messages of one type with the columns of their bodies, `_rescued` and `_error`.

    `df` has archived messages (schemas.ARCHIVE, or some of its columns with message_type, content_type and body), or
    those of a queue (schemas.MESSAGE). A message of several types is of the first one. A field whose name is a column
    of an archive gets the prefix `body_`. `columns` are those of a table that may have more than the schema.
    """
    kind = columns or decoded_type(schema)

    def decoded(bodies: pa.Array, content_types: pa.Array) -> pa.Array:
        return decode_batch(bodies, content_types, schema, kind)

    function = F.arrow_udf(decoded, kind)  # type: ignore[call-overload]  # its annotation forgets T.StructType
    named = _with_types(df).where(F.col("message_type") == schema.message_type)
    whole = named.withColumn(_DECODED, function("body", "content_type"))
    return whole.select(*named.columns, *(F.col(_DECODED).getField(name).alias(name) for name in kind.fieldNames()))


def undecoded(df: DataFrame, schemas: Collection[str]) -> DataFrame:
    """Count the messages of each type without a schema: message_type (null if the header is missing) and messages."""
    known = F.coalesce(F.col("message_type").isin(*schemas), F.lit(False))
    return _with_types(df).where(~known).groupBy("message_type").agg(F.count(F.lit(1)).alias("messages"))


def _with_types(df: DataFrame) -> DataFrame:
    return df if "message_type" in df.columns else parse_headers(df)


@dataclass(frozen=True)
class Decoded:
    """What a run has done for one type: rows that were added, how many have something in `_rescued` and in `_error`,
    new columns.
    """

    message_type: str
    table: str
    added: int = 0
    rescued: int = 0
    errors: int = 0
    new_columns: tuple[str, ...] = ()


def _table_schema(schema: Schema) -> T.StructType:
    """Return the columns of a type's table."""
    own = {column.name: column for column in ARCHIVE}
    first = [T.StructField(name, own[name].dataType) for name in ROW if name not in PARTITIONS]
    return T.StructType(
        [*first, *decoded_type(schema), *(T.StructField(name, own[name].dataType, False) for name in PARTITIONS)]
    )


def sources(table: str) -> list[str]:
    """Return the paths of the archives whose messages were decoded to a table."""
    return list(ArchiveFolder(table.rstrip("/").rpartition("/")[0]).read(_STATE) or {})


def _new_columns(known: T.StructType, wanted: T.StructType, table: str) -> T.StructType:
    """Return the columns and fields that a table lacks. Raises SparkFailed for a column of another type."""
    own = {column.name.lower(): column for column in known}
    missing = []
    for column in wanted:
        there = own.get(column.name.lower())
        before, after = ({} if each is None else _shape(each) for each in (there, column))
        if there is not None and any(before.get(place, part) != part for place, part in after.items()):
            raise SparkFailed(
                f"Cannot decode to {table}: its column {there.name} is {there.dataType.simpleString().upper()}, and "
                f"the schema has {column.name} {column.dataType.simpleString().upper()}. A type cannot change. Restore "
                "the schema, or decode to a new folder."
            )
        if after.keys() - before.keys():
            missing.append(column)
    return T.StructType(missing)


def _shape(column: T.StructField) -> dict[tuple[str, ...], tuple[Path, T.DataType | type]]:
    """Return what must not change in a column, by place in lower case: its spelling, and the type of a leaf."""
    whole = (T.StructType, T.ArrayType, T.MapType)
    found = places(T.StructType([column]))
    return {
        tuple(str(part).lower() for part in place): (place, type(kind) if isinstance(kind, whole) else kind)
        for place, kind in found
    }


@describing("decode")
def run(
    spark: SparkSession,
    path: str,
    out: str,
    schemas: Mapping[str, Schema],
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:
    """Decode what is new in an archive. Returns its version, the tables, and the messages without a schema by type.

    Raises ArchiveNotFound, and SparkFailed if a table has a column of another type, OUT is a table itself, or another
    job maintains the archive.
    """
    source, place = open_table(path), ArchiveFolder(out)
    if place.is_delta:
        raise SparkFailed(
            f"Cannot decode to {out}: it is a table itself. Name a folder for the tables of the message types."
        )
    with maintenance_lock(source.folder, "decode"):  # erase takes it too, so that it finds all copies
        source.refresh()
        if source.needs_jar:
            raise SparkFailed(
                f"Cannot decode {path}: the table has {source.needs_jar}, so that its files do not have its rows. Run "
                "REORG TABLE … APPLY (PURGE) and disable the feature with Delta's own tools."
            )
        tables = {name: _Table(f"{place.path}/{folder_name(name)}", schema) for name, schema in schemas.items()}
        for table in tables.values():  # before anything is written
            table.check()
        remember_copy(source.folder, place.path)
        state = (place.read(_STATE) or {}).get(source.folder.path, {})
        done, since = [], cache(partial(_files_since, spark, source))
        for name, each in tables.items():
            files, messages = since(state.get(name) if each.exists else None)
            done.append(each.add(spark, source, files if name in messages else []))
            progress(len(done), len(tables))
        whole = place.read(_STATE) or {}
        place.write(_STATE, whole | {source.folder.path: state | dict.fromkeys(schemas, source.version)})
    types = read_files(spark, source, source.files()).select("message_type")
    missing = undecoded(types, schemas).orderBy("message_type").collect()
    return {
        "archive_version": source.version,
        "tables": done,
        "without_schema": {row.message_type: row.messages for row in missing},
    }


def _files_since(
    spark: SparkSession, source: ArchiveTable, version: int | None
) -> tuple[list[DataFile], set[str | None]]:
    """Return the files that an archive has got since a version, or all, and the types of their messages."""
    seen = set() if version is None else source.paths_at(version) or set()
    files = [file for file in source.files() if file.path not in seen]
    types = read_files(spark, source, files).select("message_type").distinct().collect() if files else []
    return files, {row.message_type for row in types}


class _Table:
    """The table of one message type, which may not exist yet."""

    def __init__(self, path: str, schema: Schema) -> None:
        self.path, self.schema = path, schema
        self.exists = ArchiveFolder(path).is_delta
        self._missing = T.StructType()

    def check(self) -> None:
        """Raise SparkFailed if the schema does not fit to the table."""
        if self.exists:
            table = open_table(self.path)
            table.check_writable()
            self._missing = _new_columns(schema_of(table), _table_schema(self.schema), self.path)

    def add(self, spark: SparkSession, source: ArchiveTable, files: Sequence[DataFile]) -> Decoded:
        """Add new columns, and in one commit the messages of an archive's files that the table does not have."""
        if not files and not self.exists:
            return Decoded(self.schema.message_type, self.path)
        table = create_table(self.path, _table_schema(self.schema).json())
        if self._missing:
            table.add_columns(self._missing.json(), {"job": "decode", "columns": self._missing.fieldNames()})
        new = self._write(spark, table, source, files) if files else []
        done = self._counted(spark, table, new)
        if groups := small_files(table.files(), AUTOMATIC_FILES):
            for _ in merge(table, groups):
                pass
            table.vacuum()
        return done

    def _write(
        self, spark: SparkSession, table: ArchiveTable, source: ArchiveTable, files: Sequence[DataFile]
    ) -> list[NewFile]:
        """Add the messages that the table does not have, in one commit. This can be repeated, by any process."""
        columns = T.StructType([column for column in schema_of(table) if column.name not in ROW])
        own = F.col("message_type") == self.schema.message_type
        messages = read_files(spark, source, files).select(*_NEEDED).where(own).dropDuplicates(KEY)
        days = {(file.queue, file.day) for file in files}
        note = {"job": "decode", "archive": source.folder.path, "archive_version": source.version}
        while True:
            table.refresh()
            there = [file for file in table.files() if (file.queue, file.day) in days]
            unknown = messages.join(read_files(spark, table, there).select(KEY), KEY, "left_anti")
            decoded = decode_type(unknown, self.schema, columns).drop(*_NOT_KEPT)
            new = write_files(decoded, table, f"decode-{uuid.uuid4().hex[:8]}")
            if not new or table.commit(new, note={**note, "rows": sum(file.rows for file in new)}):
                return new
            table.discard(new)  # another process has changed the table meanwhile

    def _counted(self, spark: SparkSession, table: ArchiveTable, new: Sequence[NewFile]) -> Decoded:
        sums = F.count(RESCUED), F.count(ERROR)
        rescued, errors = read_files(spark, table, new).agg(*sums).collect()[0]
        added, columns = sum(file.rows for file in new), tuple(self._missing.fieldNames())
        return Decoded(self.schema.message_type, self.path, added, rescued, errors, columns)
