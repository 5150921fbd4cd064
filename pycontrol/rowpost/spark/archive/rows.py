"""Read the files of an archive's table as a DataFrame, and write a DataFrame as new files of it.

Spark reads the files of one snapshot, so it needs no jar of the table's format, and a reader never sees half a change.
In an object store, it needs that store's jar. Files are written with pyarrow, which needs none: tasks write them by
`PartsSink`, which commits nothing to the table. It leaves the descriptions of the files in a file below `_rowpost/new`,
which the driver reads and deletes. (The alternative `DataFrame.mapInArrow` needs pandas, which nothing else here does.)
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StringType, StructField, StructType

from rowpost.archive.arrow_headers import archived
from rowpost.archive.columns import PARTITIONS
from rowpost.archive.folder import ArchiveFolder
from rowpost.archive.parts import NewFile, write_parts
from rowpost.archive.table import ArchiveTable, DataFile
from rowpost.errors import SparkFailed
from rowpost.spark.archive.schemas import arrow_schema, schema_of
from rowpost.spark.session import activate

__all__ = ["FILE", "read_files", "read_table", "relative", "write_files"]

#: The column with a row's file, if it is asked for.
FILE = "_file"


def read_table(spark: SparkSession, table: ArchiveTable) -> DataFrame:
    """Read a snapshot. Raises SparkFailed if only its format's own readers understand it, and the session has none."""
    if not table.needs_jar:
        return read_files(spark, table, table.files())
    try:
        return spark.read.format("delta").option("versionAsOf", table.version).load(table.path)
    except Exception as error:  # an AnalysisException or, from the JVM, a Py4JJavaError
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        raise SparkFailed(
            f"Cannot read {table.path}: the table has {table.needs_jar}, which needs Delta's jar. Start Spark with the "
            "jar (--conf spark.jars.packages=…), or run REORG TABLE … APPLY (PURGE) and disable the feature."
        ) from error


def read_files(
    spark: SparkSession, table: ArchiveTable, files: Iterable[DataFile], *, with_file: bool = False
) -> DataFrame:
    """Read files of a snapshot, with FILE if it is asked for.

    Files in folders named by the partition are read together: filters skip folders.
    """
    schema = schema_of(table)
    folders: dict[tuple[str, str] | None, list[DataFile]] = defaultdict(list)
    for file in files:
        folders[None if file.is_in_own_folder else (file.queue, file.day)].append(file)
    result = StructType([*schema, *([StructField(FILE, StringType())] if with_file else [])])
    frames = []
    for partition, same in folders.items():
        columns = [column for column in schema if partition is None or column.name not in PARTITIONS]
        reader = spark.read.schema(StructType(columns)).option("basePath", table.path)
        frame = reader.parquet(*(f"{table.path}/{file.path}" for file in same))
        if partition is not None:
            frame = frame.withColumn("queue", F.lit(partition[0])).withColumn("day", F.lit(partition[1]).cast("date"))
        if with_file:
            frame = frame.withColumn(FILE, F.col("_metadata.file_path"))
        frames.append(frame.select(result.fieldNames()))
    return reduce(lambda one, other: one.unionByName(other), frames) if frames else spark.createDataFrame([], result)


def write_files(df: DataFrame, table: ArchiveTable, name: str, *, parse: bool = False) -> list[NewFile]:
    """Write rows as files that are not committed yet, and whose names begin with `name`.

    With `parse`, they are messages whose headers the tasks parse.
    """
    spark, unique = df.sparkSession, f"{name}-{uuid.uuid4().hex[:8]}"
    spark.dataSource.register(PartsSink)
    activate(spark)
    own = [StructField(each.name, each.dataType) for each in schema_of(table) if each.name not in PARTITIONS]
    options = {"path": table.folder.path, "name": unique, "schema": StructType(own).json(), "parse": str(parse).lower()}
    df.write.format(PartsSink.name()).mode("append").options(**options).save()
    found = table.folder.read(f"new/{unique}.json") or {"files": []}
    table.folder.remove(f"new/{unique}.json")
    return [NewFile(**each) for each in found["files"]]


def relative(table: ArchiveTable, uri: str) -> str:
    """Return the path of a file in the table from what Spark says in FILE."""
    root = table.folder.path.partition("://")[2] or table.folder.path
    return unquote(uri).partition(f"{root}/")[2]


@dataclass
class _Written(WriterCommitMessage):
    files: list[NewFile]


class PartsSink(DataSource):
    """The format rowpost_parts: path (the table's), name (of the files), schema (as JSON), parse (the headers of
    messages).
    """

    @classmethod
    def name(cls) -> str:
        return "rowpost_parts"

    def writer(self, schema: StructType, overwrite: bool) -> _PartsWriter:
        return _PartsWriter(self.options)


class _PartsWriter(DataSourceArrowWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._root, self._name, self._schema = options["path"], options["name"], options["schema"]
        self._parses = options["parse"] == "true"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Written:
        """Write the rows of one task."""
        schema = arrow_schema(StructType.fromJson(json.loads(self._schema)))
        rows = map(archived, iterator) if self._parses else iterator
        return _Written(list(write_parts(rows, self._root, schema, self._name)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Tell the driver which files were written."""
        files = [file.__dict__ for each in messages if isinstance(each, _Written) for file in each.files]
        ArchiveFolder(self._root).write(f"new/{self._name}.json", {"files": files})

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the files of the tasks that have succeeded."""
        ArchiveFolder(self._root).delete(
            file.path for each in messages if isinstance(each, _Written) for file in each.files
        )
