"""Columns of Spark as columns of Iceberg, and back.

All columns of a new table are optional: a file may lack a column that was added later, and the columns of the partition are not
in the files. Iceberg finds columns by numbers, which the files do not have. A table therefore has a name mapping.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from pyiceberg import types as I
from pyiceberg.schema import Schema
from pyspark.sql import types as T

from rowpost.errors import SparkFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["iceberg_schema", "spark_schema"]

_SCALARS: dict[type[T.DataType], I.IcebergType] = {
    T.StringType: I.StringType(), T.BooleanType: I.BooleanType(), T.ByteType: I.IntegerType(), T.ShortType: I.IntegerType(),
    T.IntegerType: I.IntegerType(), T.LongType: I.LongType(), T.FloatType: I.FloatType(), T.DoubleType: I.DoubleType(),
    T.BinaryType: I.BinaryType(), T.DateType: I.DateType(), T.TimestampType: I.TimestamptzType(), T.TimestampNTZType: I.TimestampType(),
}  # fmt: skip
_TYPES_OF_SPARK = {type(own): spark for spark, own in _SCALARS.items() if spark not in (T.ByteType, T.ShortType)}


def iceberg_schema(columns: T.StructType) -> Schema:
    """Return the schema of a new table: the numbers of its columns are those that Iceberg assigns."""
    return Schema(*_struct(columns, count(1)).fields)


def _struct(fields: T.StructType, numbers: Iterator[int]) -> I.StructType:
    own = [next(numbers) for _ in fields]  # all fields of a struct before those within them
    return I.StructType(*(
        I.NestedField(number, field.name, _iceberg_type(field.name, field.dataType, numbers), required=False, doc=(field.metadata or {}).get("comment") or None)
        for number, field in zip(own, fields, strict=True)
    ))  # fmt: skip


def _iceberg_type(name: str, kind: T.DataType, numbers: Iterator[int]) -> I.IcebergType:
    if isinstance(kind, T.StructType):
        return _struct(kind, numbers)
    if isinstance(kind, T.ArrayType):
        number = next(numbers)
        return I.ListType(number, _iceberg_type(name, kind.elementType, numbers), element_required=False)
    if isinstance(kind, T.MapType):
        key, value = next(numbers), next(numbers)
        return I.MapType(key, _iceberg_type(name, kind.keyType, numbers), value, _iceberg_type(name, kind.valueType, numbers), value_required=False)
    if isinstance(kind, T.DecimalType):
        return I.DecimalType(kind.precision, kind.scale)
    if type(kind) not in _SCALARS:
        raise SparkFailed(f"An Iceberg table cannot have the column {name} of type {kind.simpleString().upper()}.")
    return _SCALARS[type(kind)]


def spark_schema(schema: Schema, table: str) -> T.StructType:
    """Return the columns of a table. `table` names it in errors. Raises SparkFailed for a type that Spark does not have."""
    return _spark_struct(I.StructType(*schema.fields), table)


def _spark_struct(kind: I.StructType, table: str) -> T.StructType:
    return T.StructType([
        T.StructField(field.name, _spark_type(f"{field.name} of {table}", field.field_type), not field.required, {"comment": field.doc} if field.doc else None)
        for field in kind.fields
    ])  # fmt: skip


def _spark_type(name: str, kind: I.IcebergType) -> T.DataType:
    if isinstance(kind, I.StructType):
        return _spark_struct(kind, name)
    if isinstance(kind, I.ListType):
        return T.ArrayType(_spark_type(name, kind.element_type), not kind.element_required)
    if isinstance(kind, I.MapType):
        return T.MapType(_spark_type(name, kind.key_type), _spark_type(name, kind.value_type), not kind.value_required)
    if isinstance(kind, I.DecimalType):
        return T.DecimalType(kind.precision, kind.scale)
    if type(kind) not in _TYPES_OF_SPARK:
        raise SparkFailed(
            f"The column {name} has the type {kind}, which Spark cannot read. Drop the column, or read the table with Iceberg's own readers."
        )
    return _TYPES_OF_SPARK[type(kind)]()
