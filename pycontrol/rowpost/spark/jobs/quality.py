"""Compare messages with expectations (bodies/expectations.py): count by rule, type and day, and set failing messages aside.

`judge` adds to messages the names of the rules that were checked and that failed, `counted` counts them. `run` does both for an
archive. Rules are evaluated with Spark's ANSI mode off, so that a value that an expression cannot use gives null, not an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rowpost.errors import SettingsError
from rowpost.settings.yaml_node import did_you_mean
from rowpost.spark.archive.copies import remember
from rowpost.spark.archive.lease import lease
from rowpost.spark.archive.opening import create_table, open_table
from rowpost.spark.archive.policy import pattern
from rowpost.spark.archive.rows import read_table
from rowpost.spark.archive.schemas import ARCHIVE
from rowpost.spark.archive.table import ArchiveTable
from rowpost.spark.bodies.conditions import condition
from rowpost.spark.bodies.expectations import Expectations, Rule
from rowpost.spark.bodies.schema_files import ERROR, RESCUED, Schema
from rowpost.spark.jobs.appending import append, not_in
from rowpost.spark.jobs.decode import decode_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["APART", "FAILED", "JUDGED", "Outcome", "counted", "judge", "run", "since"]

JUDGED, FAILED = "checked_rules", "failed_rules"
_ROWS = ARCHIVE.fieldNames()
#: The table of failing messages: the archive's columns, what was left over of the body, and the rules.
APART = T.StructType([
    *(column for column in ARCHIVE if column.name not in ("queue", "day")),
    T.StructField(RESCUED, T.StringType()), T.StructField(ERROR, T.StringType()), T.StructField(FAILED, T.ArrayType(T.StringType())),
    *(column for column in ARCHIVE if column.name in ("queue", "day")),
])  # fmt: skip
_KEY = ("queue", "id", "row_version", FAILED)


@dataclass(frozen=True)
class Outcome:
    """The result of one rule: the messages that it was checked on, and those that failed. `days` are rows of `counted`."""

    rule: Rule
    messages: int
    failed: int
    days: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    @property
    def share(self) -> float:
        return self.failed / self.messages if self.messages else 0.0

    @property
    def is_breach(self) -> bool:
        """Whether the exit code says so: an error, above its allowed share."""
        return self.rule.severity == "error" and self.share > self.rule.allowed


def since(df: DataFrame, today: date, span: timedelta | None) -> DataFrame:
    """Return the messages of the last days, by the column day; all if `span` is None."""
    return df if span is None else df.where(F.col("day") > F.lit(today - span))


def judge(df: DataFrame, expectations: Expectations, schemas: Mapping[str, Schema]) -> DataFrame:
    """Return archived messages with the columns of APART and JUDGED.

    Raises SettingsError for a rule that fits to no message type: its columns do not exist, or its SQL is not valid.
    """
    groups = {name: decode_type(df, schema) for name, schema in schemas.items()}
    others = df.where(~F.coalesce(F.col("message_type").isin(*schemas), F.lit(False))) if schemas else df
    used: dict[str, int] = dict.fromkeys((rule.name for rule in expectations.rules), 0)
    problems: dict[str, str] = {}
    parts = []
    for name, messages in [*groups.items(), (None, others)]:
        judged = _judge_group(messages, name, expectations.rules, used, problems)
        parts.append(judged)
    for rule in expectations.rules:
        if not used[rule.name]:
            raise SettingsError(f"{expectations.file}: rule {rule.name!r}: {problems.get(rule.name) or _no_type(rule, schemas)}")
    return reduce(lambda one, other: one.unionByName(other), parts)


def _judge_group(messages: DataFrame, name: str | None, rules: Sequence[Rule], used: dict[str, int], problems: dict[str, str]) -> DataFrame:
    """Judge the messages of one type, or of all types without a schema (None)."""
    judged, failed = [], []
    for rule in rules:
        applies = _applies(rule, name)
        if applies is None:
            continue
        try:
            passes = F.lit(name is not None) if rule.check == "known_type" else condition(rule)
            messages.select(passes)
        except (AnalysisException, ParseException) as error:
            problems.setdefault(rule.name, _problem(error, messages))
            continue
        used[rule.name] += 1
        judged.append(F.when(applies, F.lit(rule.name)))
        failed.append(F.when(applies & ~F.coalesce(passes, F.lit(True)), F.lit(rule.name)))
    texts = T.ArrayType(T.StringType())
    with_rules = messages.withColumns({
        JUDGED: F.array_compact(F.array(*judged)).cast(texts), FAILED: F.array_compact(F.array(*failed)).cast(texts),
        **{each: F.lit(None).cast("string") for each in (RESCUED, ERROR) if each not in messages.columns},
    })  # fmt: skip
    return with_rules.select(*_ROWS, RESCUED, ERROR, JUDGED, FAILED)


def _applies(rule: Rule, name: str | None) -> Column | None:
    """Return the condition that a rule is for a message of a group. None if it is for none of them."""
    if rule.check == "no_rescued" and name is None:
        return None
    if name is not None:
        return F.lit(True) if re.fullmatch(pattern(rule.message_type), name) else None
    if rule.check == "known_type":
        return F.col("message_type").isNotNull() & F.col("message_type").rlike(pattern(rule.message_type))
    return F.lit(True) if rule.message_type == "*" else F.coalesce(F.col("message_type").rlike(pattern(rule.message_type)), F.lit(False))


def _problem(error: PySparkException, messages: DataFrame) -> str:
    text = str(error)
    found = text.partition("`")[2].partition("`. ")[0].partition("` cannot")[0]
    if "UNRESOLVED_COLUMN" in text or "FIELD_NOT_FOUND" in text:
        column = found.replace("`", "")
        return f"there is no column {column}{did_you_mean(column, messages.columns) or ': the columns are those of the schema and of an archive'}"
    return f"is not valid: {text.partition('] ')[2].splitlines()[0] if '] ' in text else text.splitlines()[0]}"


def _no_type(rule: Rule, schemas: Mapping[str, Schema]) -> str:
    if rule.check == "no_rescued":
        return f"no schema is of a type {rule.message_type}, and only decoded bodies have something left over: name a folder with schemas"
    return f"no message type fits to {rule.message_type}{did_you_mean(rule.message_type, schemas)}"


def counted(judged: DataFrame) -> DataFrame:
    """Count judged messages: rule, message_type, day, messages, failed, example (the id of a failing message)."""
    each = judged.select("day", "message_type", "message_id", FAILED, F.explode(JUDGED).alias("rule"))
    failed = F.array_contains(F.col(FAILED), F.col("rule"))
    return each.groupBy("rule", "message_type", "day").agg(
        F.count(F.lit(1)).alias("messages"), F.count_if(failed).alias("failed"), F.min(F.when(failed, F.col("message_id"))).alias("example")
    )


def run(
    spark: SparkSession, path: str, expectations: Expectations, schemas: Mapping[str, Schema], *, today: date, span: timedelta | None = None,
    apart: str | None = None,
) -> tuple[list[Outcome], dict[str, int]]:  # fmt: skip
    """Judge an archive. Returns an outcome for each rule, in the file's order, and counts.

    With `apart`, failing messages are added to the table there, each once for each set of failed rules.

    Raises:
        ArchiveNotFound: there is no archive in `path`.
        SettingsError: a rule fits to no message type.
        SparkFailed: the table in `apart` is another one, or a rule's expression fails.
    """
    source = open_table(path)
    with _lenient(spark):
        _check_patterns(spark, expectations)
        judged = judge(since(read_table(spark, source), today, span), expectations, schemas)
        added = 0 if apart is None else _set_apart(spark, source, judged, apart)
        rows = counted(judged).orderBy("rule", "message_type", "day").collect()
    days: dict[str, list[dict[str, Any]]] = {rule.name: [] for rule in expectations.rules}
    for row in rows:
        days[row.rule].append(row.asDict())
    outcomes = [
        Outcome(rule, sum(day["messages"] for day in days[rule.name]), sum(day["failed"] for day in days[rule.name]), tuple(days[rule.name]))
        for rule in expectations.rules
    ]  # fmt: skip
    return outcomes, {"archive_version": source.version, "apart": added}


def _set_apart(spark: SparkSession, source: ArchiveTable, judged: DataFrame, apart: str) -> int:
    failing = judged.where(F.size(FAILED) > 0).select(APART.fieldNames())
    with lease(source.folder, "quality"):
        table = create_table(apart, APART)
        table.check_writable()
        if FAILED not in table.schema.fieldNames():
            raise SettingsError(f"Cannot write failing messages to {apart}: the table there is another one. Name a new folder or table.")
        remember(source.folder, table.path)
        new = append(table, "quality", lambda: not_in(spark, table, failing, _KEY), {"archive": source.folder.path})
    return sum(file.rows for file in new)


def _check_patterns(spark: SparkSession, expectations: Expectations) -> None:
    """Raise SettingsError for a regular expression that Java cannot read."""
    for rule in expectations.rules:
        if rule.check == "matches":
            try:
                spark.range(1).select(F.lit("").rlike(f"^(?:{rule.text})$")).collect()
            except PySparkException as error:
                raise SettingsError(f"{expectations.file}: rule {rule.name!r}: matches: {rule.text!r} is not a regular expression of Java") from error


@contextmanager
def _lenient(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        yield
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)  # type: ignore[arg-type]
