"""Delete or redact archived messages by the rules of a policy.

`plan` computes what a run would do, and `run` with `apply` does it. A second run changes nothing more.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict

from pyspark.sql import functions as F

from rowpost.spark.archive.folder import ArchiveFolder, Batch
from rowpost.spark.archive.headers import read_headers
from rowpost.spark.archive.policy import Policy, Rule, pattern
from rowpost.spark.archive.rewriting import new_name, replace
from rowpost.spark.jobs.archive import read_archive
from rowpost.wire.headers import EXCEPTION_DATA, EXCEPTION_MESSAGE, EXCEPTION_STACK_TRACE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["REDACTED_HEADER", "PlannedChange", "decide", "over_limits", "plan", "redact", "run"]

#: The header that marks a redacted message.
REDACTED_HEADER = "Rowpost.Redacted"
_ACTION = "action"
_KEPT_HEADERS = r"^(NServiceBus\.|\$\.diagnostics\.|Rowpost\.)"
_FREE_TEXT = (EXCEPTION_MESSAGE, EXCEPTION_STACK_TRACE, EXCEPTION_DATA)
_WHOLE_DAY = "limit"


def decide(df: DataFrame, rules: Iterable[Rule], now: datetime) -> DataFrame:
    """Add `action` to archived messages: delete, redact or null. The first rule that matches applies."""
    decided = F.lit(None).cast("string")
    for rule in reversed(list(rules)):
        action = F.when(~_is_redacted(), F.lit("redact")) if rule.action == "redact" else F.lit(rule.action)
        decided = F.when(_matches(rule, now), action).otherwise(decided)
    return df.withColumn(_ACTION, decided)


def _matches(rule: Rule, now: datetime) -> Column:
    matches = F.col("queue").rlike(pattern(rule.queue))
    if rule.message_type != "*":
        matches &= F.coalesce(F.col("message_type").rlike(pattern(rule.message_type)), F.lit(False))
    if rule.older_than is not None:
        matches &= F.col("day") < F.lit((now - rule.older_than).date())
    if rule.larger_than is not None:
        matches &= F.col("body_bytes") > rule.larger_than
    return matches


def _is_redacted() -> Column:
    return F.coalesce(F.map_contains_key(read_headers(F.col("headers")), REDACTED_HEADER), F.lit(False))


def redact(df: DataFrame) -> DataFrame:
    """Remove bodies, application headers and exception texts. The columns that the jobs count and measure stay."""
    headers = read_headers(F.col("headers"))
    kept = F.map_filter(headers, lambda name, _: name.rlike(_KEPT_HEADERS) & ~name.isin(*_FREE_TEXT))
    marked = F.map_concat(F.coalesce(kept, F.create_map().cast("map<string,string>")), F.create_map(F.lit(REDACTED_HEADER), F.lit("true")))
    return df.withColumns({
        "headers": F.to_json(marked, {"ignoreNullFields": "false"}),
        "body": F.lit(None).cast("binary"),
        "exception_message": F.lit(None).cast("string"),
    })


class PlannedChange(TypedDict):
    """What a run would do to the messages of a queue and day.

    `bytes` are those of the bodies; if a limit deletes the day, those of its files.
    """

    queue: str
    day: str
    action: str
    messages: int
    bytes: int


def over_limits(batches: Iterable[Batch], policy: Policy) -> set[tuple[str, str]]:
    """Return the queue and day of each day to delete: the oldest days that exceed a limit."""
    sizes: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for batch in batches:
        sizes[batch.queue][batch.day] += batch.bytes
    over = set()
    for queue, days in sizes.items():
        limits = [limit.total for limit in policy.limits if re.match(pattern(limit.queue), queue)]
        total = 0
        for day in sorted(days, reverse=True):
            total += days[day]
            if limits and total > min(limits):
                over.add((queue, day))
    return over


def plan(spark: SparkSession, folder: ArchiveFolder, policy: Policy, now: datetime) -> list[PlannedChange]:
    """Return what a run would do, ordered by queue and day."""
    batches = folder.batches()
    over = over_limits(batches, policy)
    found: list[PlannedChange] = [
        {"queue": queue, "day": day, "action": _WHOLE_DAY, "messages": folder.rows(path for batch in of_day for path in batch.files),
         "bytes": sum(batch.bytes for batch in of_day)}
        for (queue, day), of_day in _by_day(batches).items()
        if (queue, day) in over
    ]  # fmt: skip
    if policy.rules:
        decided = decide(read_archive(spark, folder.path), policy.rules, now).where(F.col(_ACTION).isNotNull())
        grouped = decided.groupBy("queue", "day", _ACTION).agg(F.count(F.lit(1)).alias("messages"), F.sum("body_bytes").alias("bytes"))
        for row in grouped.collect():
            if (row.queue, str(row.day)) not in over:
                found.append({"queue": row.queue, "day": str(row.day), "action": row.action, "messages": row.messages, "bytes": row.bytes})
    return sorted(found, key=lambda each: (each["queue"], each["day"], each["action"]))


def run(
    spark: SparkSession, path: str, policy: Policy, now: datetime, *, apply: bool = False,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[list[PlannedChange], dict[str, int]]:  # fmt: skip
    """Return the plan and counts of the changes. Nothing is changed unless `apply` is true. Raises ArchiveNotFound, SparkFailed."""
    folder = ArchiveFolder(path)
    folder.check_exists()
    folder.check_parquet("change")
    recovered = folder.recover() if apply else 0
    steps = plan(spark, folder, policy, now)
    counts = {"recovered": recovered, "days": 0, "deleted": 0, "redacted": 0}
    days = _by_day(folder.batches())
    todo = sorted({(step["queue"], step["day"]) for step in steps}) if apply else []
    for number, day in enumerate(todo):
        progress(number, len(todo))
        actions = {step["action"]: step["messages"] for step in steps if (step["queue"], step["day"]) == day}

        def kept(df: DataFrame) -> DataFrame:
            decided = decide(df, policy.rules, now)
            action = F.coalesce(F.col(_ACTION), F.lit(""))
            unchanged, redacted = decided.where(~action.isin("delete", "redact")), decided.where(action == "redact")
            return unchanged.unionByName(redact(redacted)).drop(_ACTION)

        change = replace(spark, folder, days[day], None if _WHOLE_DAY in actions else kept,
                         name=new_name(now.strftime("%Y%m%dT%H%M%S")), kind="retain")  # fmt: skip
        counts["days"] += 1
        counts["deleted"] += change.rows_before - change.rows_after
        counts["redacted"] += actions.get("redact", 0)
    progress(len(todo), len(todo))
    return steps, counts


def _by_day(batches: Iterable[Batch]) -> dict[tuple[str, str], list[Batch]]:
    days: dict[tuple[str, str], list[Batch]] = defaultdict(list)
    for batch in batches:
        days[batch.queue, batch.day].append(batch)
    return days
