"""The conditions of rules (expectations.py) as columns of Spark: true for a message that passes, false for one that fails, null if it cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from rowpost.spark.bodies.expectations import Rule
from rowpost.spark.bodies.schema_files import ERROR, RESCUED

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["condition"]


def condition(rule: Rule) -> Column:
    """Return the condition of a rule, on the columns of decoded messages. `known_type` has none: the caller decodes by type."""
    return _CONDITIONS[rule.check](rule)


def _not_null(rule: Rule) -> Column:
    return reduce(and_, [F.col(name).isNotNull() for name in rule.columns])


def _is_in_range(rule: Rule) -> Column:
    return reduce(and_, _bounds(rule, F.col(rule.columns[0])))


def _bounds(rule: Rule, column: Column) -> Iterator[Column]:
    if rule.low is not None:
        yield column >= F.lit(rule.low)
    if rule.high is not None:
        yield column <= F.lit(rule.high)


def _is_first(rule: Rule) -> Column:
    """Whether no other message of the type with the same values was sent before, or within the time before. Copies of one message are one."""
    columns = [F.col(name) for name in rule.columns]
    at = F.unix_micros(F.coalesce("time_sent", "archived_at"))
    reach = Window.unboundedPreceding if rule.within is None else -round(rule.within.total_seconds() * 1_000_000)
    window = Window.partitionBy("message_type", *columns).orderBy(at).rangeBetween(reach, Window.currentRow)
    return reduce(or_, [column.isNull() for column in columns]) | (F.size(F.collect_set("message_id").over(window)) <= 1)


def _follows(rule: Rule) -> Column:
    """Whether the number before this one is there, or this is the first of its key."""
    number = F.col(rule.columns[0])
    before = F.lag(number).over(Window.partitionBy("message_type", *map(F.col, rule.by)).orderBy(number))
    return number.isNull() | before.isNull() | (number - before <= 1)


_CONDITIONS: Mapping[str, Callable[[Rule], Column]] = {
    "not_null": _not_null,
    "range": _is_in_range,
    "values": lambda rule: F.col(rule.columns[0]).isin(*rule.values),
    "matches": lambda rule: F.col(rule.columns[0]).cast("string").rlike(f"^(?:{rule.text})$"),
    "sql": lambda rule: F.expr(rule.text),
    "unique": _is_first,
    "sequence": _follows,
    "no_rescued": lambda rule: F.col(RESCUED).isNull() & F.col(ERROR).isNull(),
}
