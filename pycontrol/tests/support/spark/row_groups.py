"""Write archives with many small row groups without Spark, and look into their Parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import SparkSession

from rowpost.archive.folder import ArchiveFolder
from rowpost.archive.parts import SEARCHED, write_parts
from rowpost.archive.table import ArchiveTable, create_table

__all__ = ["add_file", "bloom_filters_with", "damage"]


def add_file(path: Path, batches: Iterable[pa.RecordBatch], name: str = "part") -> ArchiveTable:
    """Add the messages of one queue and day to an archive as one file."""
    table = create_table(str(path))
    assert table.commit(list(write_parts(batches, str(path), table.arrow_schema, name)), note={})
    return table


def damage(path: Path, conversation: str) -> int:
    """Overwrite the pages of the row groups that do not have a conversation, and return their number. Footers, filters and indexes stay."""
    damaged = 0
    for file in path.glob("queue=*/day=*/*.parquet"):
        footer, content = parquet.read_metadata(file), bytearray(file.read_bytes())
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            if (
                conversation
                in parquet.ParquetFile(file).read_row_group(number, ["conversation_id"]).column(0).to_pylist()
            ):
                continue
            damaged += 1
            for column in map(group.column, range(group.num_columns)):
                begin = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
                content[begin : begin + column.total_compressed_size] = bytes(column.total_compressed_size)
        file.write_bytes(content)
    return damaged


def bloom_filters_with(spark: SparkSession, path: Path, text: str) -> list[str]:
    """Return all files below a folder that have a Bloom filter which does not exclude a text, read by Parquet's own library."""
    return [
        name
        for name, info in ArchiveFolder(str(path)).contents()
        if info.is_file and name.endswith(".parquet") and any(_found(spark, path / name, text))
    ]


def _found(spark: SparkSession, file: Path, text: str) -> Iterator[bool]:
    parquet_java, hadoop = spark._jvm.org.apache.parquet, spark._jsc.hadoopConfiguration()
    value = parquet_java.io.api.Binary.fromString(text)
    source = parquet_java.hadoop.util.HadoopInputFile.fromPath(spark._jvm.org.apache.hadoop.fs.Path(str(file)), hadoop)
    reader = parquet_java.hadoop.ParquetFileReader.open(source)
    try:
        for block in reader.getFooter().getBlocks():
            for column in block.getColumns():
                bloom = reader.getBloomFilterDataReader(block).readBloomFilter(column)
                if column.getPath().toDotString() in SEARCHED and bloom is not None:
                    yield bloom.findHash(bloom.hash(value))
    finally:
        reader.close()
