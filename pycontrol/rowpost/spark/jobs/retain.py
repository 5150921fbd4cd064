"""What an archive forgets: whole messages, or what they said. Dry run first; running it twice changes nothing more."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from rowpost.spark.archive.folder import ArchiveFolder, Batch
from rowpost.spark.archive.headers import read_headers
from rowpost.spark.archive.policy import Policy, Rule, pattern
from rowpost.spark.archive.rewriting import new_name, replace
from rowpost.spark.jobs.archive import read_archive
from rowpost.wire.headers import EXCEPTION_DATA, EXCEPTION_MESSAGE, EXCEPTION_STACK_TRACE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["REDACTED", "decide", "over_limits", "plan", "redact", "run"]

#: the header that a redacted message bears
REDACTED = "Rowpost.Redacted"
_FATE = "fate"
_KEPT_HEADERS = r"^(NServiceBus\.|\$\.diagnostics\.|Rowpost\.)"
_FREE_TEXT = (EXCEPTION_MESSAGE, EXCEPTION_STACK_TRACE, EXCEPTION_DATA)
_WHOLE_DAY = "limit"


def decide(df: DataFrame, rules: Iterable[Rule], now: datetime) -> DataFrame:
    """Adds `fate` to archived messages: delete, redact, or null. The first rule that fits decides."""
    fate = F.lit(None).cast("string")
    for rule in reversed(list(rules)):
        action = F.when(~_is_redacted(), F.lit("redact")) if rule.action == "redact" else F.lit(rule.action)
        fate = F.when(_fits(rule, now), action).otherwise(fate)
    return df.withColumn(_FATE, fate)


def _fits(rule: Rule, now: datetime) -> Column:
    fits = F.col("queue").rlike(pattern(rule.queue))
    if rule.message_type != "*":
        fits &= F.coalesce(F.col("message_type").rlike(pattern(rule.message_type)), F.lit(False))
    if rule.older_than is not None:
        fits &= F.col("day") < F.lit((now - rule.older_than).date())
    if rule.larger_than is not None:
        fits &= F.col("body_bytes") > rule.larger_than
    return fits


def _is_redacted() -> Column:
    return F.coalesce(F.map_contains_key(read_headers(F.col("headers")), REDACTED), F.lit(False))


def redact(df: DataFrame) -> DataFrame:
    """Without bodies, headers of the application, and what exceptions said. What is counted and measured stays."""
    headers = read_headers(F.col("headers"))
    kept = F.map_filter(headers, lambda name, _: name.rlike(_KEPT_HEADERS) & ~name.isin(*_FREE_TEXT))
    marked = F.map_concat(F.coalesce(kept, F.create_map().cast("map<string,string>")), F.create_map(F.lit(REDACTED), F.lit("true")))
    return df.withColumns({
        "headers": F.to_json(marked, {"ignoreNullFields": "false"}),
        "body": F.lit(None).cast("binary"),
        "exception_message": F.lit(None).cast("string"),
    })


def over_limits(batches: Iterable[Batch], policy: Policy) -> set[tuple[str, str]]:
    """Queue and day of what is over a limit: the oldest days, whole."""
    sizes: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for batch in batches:
        sizes[batch.queue][batch.day] += batch.bytes
    gone = set()
    for queue, days in sizes.items():
        limits = [limit.total for limit in policy.limits if re.match(pattern(limit.queue), queue)]
        total = 0
        for day in sorted(days, reverse=True):
            total += days[day]
            if limits and total > min(limits):
                gone.add((queue, day))
    return gone


def plan(spark: SparkSession, folder: ArchiveFolder, policy: Policy, now: datetime) -> list[dict[str, object]]:
    """What a run would do: queue, day, action, messages and bytes of bodies, by queue and day."""
    found = [
        {"queue": queue, "day": day, "action": _WHOLE_DAY, "messages": folder.rows(path for batch in of_day for path in batch.files),
         "bytes": sum(batch.bytes for batch in of_day)}
        for (queue, day), of_day in _by_day(folder.batches()).items()
        if (queue, day) in over_limits(folder.batches(), policy)
    ]  # fmt: skip
    whole = {(each["queue"], each["day"]) for each in found}
    if policy.rules:
        decided = decide(read_archive(spark, folder.path), policy.rules, now).where(F.col(_FATE).isNotNull())
        grouped = decided.groupBy("queue", "day", _FATE).agg(F.count(F.lit(1)).alias("messages"), F.sum("body_bytes").alias("bytes"))
        for row in grouped.collect():
            if (row.queue, str(row.day)) not in whole:
                found.append({"queue": row.queue, "day": str(row.day), "action": row.fate, "messages": row.messages, "bytes": row.bytes})
    return sorted(found, key=lambda each: (each["queue"], each["day"], each["action"]))


def run(
    spark: SparkSession, path: str, policy: Policy, now: datetime, *, apply: bool = False,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[list[dict[str, object]], dict[str, int]]:  # fmt: skip
    """The plan, and counts of what was done: nothing unless `apply`. Raises ArchiveNotFound, SparkFailed."""
    folder = ArchiveFolder(path)
    folder.must_exist()
    folder.must_be_parquet("clean")
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
            fate = F.coalesce(F.col(_FATE), F.lit(""))
            stay, changed = decided.where(~fate.isin("delete", "redact")), decided.where(fate == "redact")
            return stay.unionByName(redact(changed)).drop(_FATE)

        change = replace(spark, folder, days[day], None if _WHOLE_DAY in actions else kept,
                         name=new_name(now.strftime("%Y%m%dT%H%M%S")), kind="retain")  # fmt: skip
        counts["days"] += 1
        counts["deleted"] += change.rows_before - change.rows_after
        counts["redacted"] += int(actions.get("redact", 0))
    progress(len(todo), len(todo))
    return steps, counts


def _by_day(batches: Iterable[Batch]) -> dict[tuple[str, str], list[Batch]]:
    days: dict[tuple[str, str], list[Batch]] = defaultdict(list)
    for batch in batches:
        days[batch.queue, batch.day].append(batch)
    return days
