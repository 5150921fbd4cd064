"""Which columns a read has: those of a message, or the ones that its options name. Others are not read from the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql.types import StringType, StructField, StructType

from rowpost.archive.source.options import DRAIN
from rowpost.errors import SettingsError
from rowpost.spark.archive.schemas import MESSAGE
from rowpost.spark.source.options import includes_headers

__all__ = ["check_schema_is_selected", "selected_columns"]

_OPTION = "columns"


def selected_columns(options: Mapping[str, str]) -> StructType:
    """Return the columns that the options name, in their order.

    Without the option `columns`, these are all columns of a message, without headers if includeHeaders is false, and with the queue if
    several are read.

    Raises:
        SettingsError: a message has no such column, or the others would be lost, because the stream is a drain.
    """
    fields = [field for field in MESSAGE if field.name != "headers" or includes_headers(options)]
    if _reads_several(options):
        fields.append(StructField("queue", StringType(), False))
    names = _names(options)
    if names is None:
        return StructType(fields)
    if options.get("mode", "").lower() == DRAIN:
        raise SettingsError("The option columns is not for mode=drain, which removes the messages: their other columns would be lost. Remove it.")
    known = {field.name: field for field in fields}
    wrong = [name for name in names if name not in known]
    if wrong or len(set(names)) < len(names):
        why = f"{wrong[0]!r} is not a column of this read" if wrong else "a column is named twice"
        raise SettingsError(f"The option columns cannot be {options[_OPTION]!r}: {why}. Its columns are {', '.join(known)}.")
    return StructType([known[name] for name in names])


def check_schema_is_selected(options: Mapping[str, str], schema: StructType) -> None:
    """Raise SettingsError if `.schema(…)` and the option `columns` name different columns."""
    if _names(options) is not None and schema.fieldNames() != selected_columns(options).fieldNames():
        raise SettingsError(f"The option columns ({options[_OPTION]}) and .schema() name different columns. Use one of them.")


def _names(options: Mapping[str, str]) -> Sequence[str] | None:
    text = options.get(_OPTION)
    return None if text is None else [name.strip() for name in text.split(",")]


def _reads_several(options: Mapping[str, str]) -> bool:
    listed, one = options.get("subscribe") or "", options.get("queue")
    return options.get("subscribePattern") is not None or ("," in listed and not one)
