"""The Spark data source `rowpost`: a queue as a table, as a stream, and as a sink.

    spark.read.format("rowpost").option("queue", "audit").load()

The readers and writers are imported only when they are needed, because Spark creates the source in several short-lived
processes. The columns are those of schemas.MESSAGE, or a subset: columns that the option columns
(`row_version,headers`) or `.schema("row_version bigint, headers string")` omits are not read. Arrow limits a column of
one batch to 2 GB, and with it a body. A batch exceeds maxBytesPerBatch only if it is a single message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StringType, StructField, StructType

from rowpost.archive.source.options import DRAIN
from rowpost.errors import SettingsError
from rowpost.spark.archive.schemas import MESSAGE
from rowpost.spark.source.options import (
    WriteOptions,
    check_no_secrets,
    flag,
    in_environment,
    read_options,
    write_options,
)

__all__ = ["QueueSource"]

_COLUMNS = "columns"


class QueueSource(DataSource):
    """The data source `rowpost`.

    Raises SettingsError for a URL or a password among the options, before Spark has a plan.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        check_no_secrets(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return "rowpost"

    def schema(self) -> StructType:
        """Return the columns of a message, or those that the options name."""
        return _selected_columns(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Create the reader of `spark.read`."""
        from rowpost.spark.source.readers import QueueReader

        _check_selected(self.options, schema)
        options = in_environment(read_options(self.options))
        if options.several:
            raise SettingsError(
                f"A batch reads one queue (got {options.queue!r}). Read each queue and combine them with union, or use "
                "readStream."
            )
        return QueueReader(options, schema)

    def streamReader(self, schema: StructType) -> Any:
        """Create the reader of `spark.readStream`."""
        from rowpost.spark.source.readers import StreamReader

        _check_selected(self.options, schema)
        return StreamReader(in_environment(read_options(self.options, stream=True)), schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Create the writer of `df.write`. Raises SettingsError."""
        from rowpost.spark.source.sink import batch_writer

        return batch_writer(self._write_options(overwrite), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Create the writer of `df.writeStream`. Raises SettingsError."""
        from rowpost.spark.source.sink import StreamWriter

        return StreamWriter(self._write_options(overwrite, stream=True), schema)

    def _write_options(self, overwrite: bool, *, stream: bool = False) -> WriteOptions:
        if overwrite:
            raise SettingsError(
                'A write to a queue cannot replace its messages. Use .mode("append"). `rowpost queue purge` empties a '
                "queue."
            )
        return in_environment(write_options(self.options, stream=stream))


def _selected_columns(options: Mapping[str, str]) -> StructType:
    """Return the columns that the option `columns` names, in their order, or all.

    Raises SettingsError for others, and for a drain.
    """
    has_headers = flag("includeHeaders", options.get("includeHeaders", "true"))
    fields = [field for field in MESSAGE if has_headers or field.name != "headers"]
    is_list = "," in (options.get("subscribe") or "") and not options.get("queue")
    if is_list or options.get("subscribePattern") is not None:
        fields.append(StructField("queue", StringType(), False))
    names = _names(options)
    if names is None:
        return StructType(fields)
    if options.get("mode", "").lower() == DRAIN:
        raise SettingsError(
            "The option columns is not for mode=drain, which removes the messages: their other columns would be lost. "
            "Remove it."
        )
    known = {field.name: field for field in fields}
    wrong = [name for name in names if name not in known]
    if wrong or len(set(names)) < len(names):
        why = f"{wrong[0]!r} is not a column of this read" if wrong else "a column is named twice"
        raise SettingsError(
            f"The option columns cannot be {options[_COLUMNS]!r}: {why}. Its columns are {', '.join(known)}."
        )
    return StructType([known[name] for name in names])


def _check_selected(options: Mapping[str, str], schema: StructType) -> None:
    """Raise SettingsError if `.schema(…)` and the option `columns` name different columns."""
    if _names(options) is not None and schema.fieldNames() != _selected_columns(options).fieldNames():
        raise SettingsError(
            f"The option columns ({options[_COLUMNS]}) and .schema() name different columns. Use one of them."
        )


def _names(options: Mapping[str, str]) -> Sequence[str] | None:
    text = options.get(_COLUMNS)
    return None if text is None else [name.strip() for name in text.split(",")]
