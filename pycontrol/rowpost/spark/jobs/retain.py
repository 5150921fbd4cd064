"""Delete or redact archived messages by the rules of a policy.

`plan` computes what a run would do, and `run` with `apply` does it. A second run changes nothing more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import reduce
from itertools import groupby
from operator import or_
from typing import Any, TypedDict

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from rowpost.archive.lease import lease
from rowpost.archive.table import ArchiveTable, DataFile, open_table
from rowpost.spark.archive.headers import read_headers
from rowpost.spark.archive.policy import Retention, Rule, pattern
from rowpost.spark.archive.records import places
from rowpost.spark.archive.rows import read_files
from rowpost.spark.archive.schemas import ESSENTIAL
from rowpost.spark.describing import describing
from rowpost.spark.jobs.copied import ChangedCopies, follow
from rowpost.spark.jobs.maintenance import ACTION, DELETE, REDACT, FileReplacement, RewriteCounts, RowChange, work
from rowpost.wire import headers as wire

__all__ = ["PlannedChange", "decide", "is_redacted", "plan", "run"]

#: The header that marks a redacted message.
REDACTED_HEADER = "Rowpost.Redacted"
_KEPT_HEADERS = (
    wire.MESSAGE_ID, wire.CONVERSATION_ID, wire.RELATED_TO, wire.MESSAGE_INTENT, wire.ENCLOSED_MESSAGE_TYPES,
    wire.CONTENT_TYPE, wire.ORIGINATING_ENDPOINT, wire.PROCESSING_ENDPOINT, wire.TIME_SENT, wire.PROCESSING_STARTED,
    wire.PROCESSING_ENDED, wire.DELIVER_AT, wire.TIME_OF_FAILURE, wire.FAILED_QUEUE, wire.EXCEPTION_TYPE,
)  # fmt: skip
_REMOVED_COLUMNS = ("body", "reply_to_address", "sending_machine", "machine", "exception_message")
_WHOLE_DAY = "limit"


def decide(df: DataFrame, rules: Iterable[Rule], now: datetime) -> DataFrame:
    """Add ACTION to archived messages. The first rule that matches applies."""
    decided = F.lit(None).cast("string")
    for rule in reversed(list(rules)):
        action = F.when(~is_redacted(), F.lit(REDACT)) if rule.action == REDACT else F.lit(rule.action)
        decided = F.when(_matches(rule, now), action).otherwise(decided)
    return df.withColumn(ACTION, decided)


def _matches(rule: Rule, now: datetime) -> Column:
    matches = F.col("queue").rlike(pattern(rule.queue))
    if rule.message_type != "*":
        matches &= F.coalesce(F.col("message_type").rlike(pattern(rule.message_type)), F.lit(False))
    if rule.older_than is not None:
        matches &= F.col("day") < F.lit((now - rule.older_than).date())
    if rule.larger_than is not None:
        matches &= F.col("body_bytes") > rule.larger_than
    return matches


def is_redacted() -> Column:
    """Return the condition that `_redacted` has written the headers.

    Within a value, JSON escapes each quotation mark.
    """
    return F.coalesce(F.contains("headers", F.lit(f'"{REDACTED_HEADER}":"true"')), F.lit(False))


def _redacted(df: DataFrame) -> dict[str, Column]:
    """Return the columns without what can name people and machines: bodies, addresses, machines, exception texts and
    all headers but those in _KEPT_HEADERS.

    The columns that the jobs count and measure stay.
    """
    # the parser runs in Python: it gets only the headers that it is needed for
    headers = read_headers(F.when(F.col(ACTION) == REDACT, F.col("headers")))
    kept = F.map_filter(headers, lambda name, _: name.isin(*_KEPT_HEADERS) | name.startswith("Rowpost."))
    marked = F.map_concat(
        F.coalesce(kept, F.create_map().cast("map<string,string>")), F.create_map(F.lit(REDACTED_HEADER), F.lit("true"))
    )
    return {
        "headers": F.to_json(marked, {"ignoreNullFields": "false"}),
        **{name: F.lit(None) for name in _REMOVED_COLUMNS if name in df.columns},
    }


class PlannedChange(TypedDict):
    """What a run would do to the messages of a queue and day.

    `bytes` are those of the bodies; if a limit deletes the day, those of its files.
    """

    queue: str
    day: str
    action: str
    messages: int
    bytes: int


def _over_limits(files: Iterable[DataFile], policy: Retention) -> set[tuple[str, str]]:
    """Return the queue and day of each day to delete: the oldest days that exceed a limit."""
    sizes, totals = Counter[tuple[str, str]](), Counter[str]()
    for file in files:
        sizes[file.queue, file.day] += file.bytes
    over = set()
    for queue, day in sorted(sizes, reverse=True):
        totals[queue] += sizes[queue, day]
        limits = [limit.total for limit in policy.limits if re.match(pattern(limit.queue), queue)]
        if limits and totals[queue] > min(limits):
            over.add((queue, day))
    return over


def plan(
    spark: SparkSession, table: ArchiveTable, policy: Retention, now: datetime, files: Sequence[DataFile]
) -> tuple[list[PlannedChange], list[FileReplacement]]:
    """Return what the policy does to files of the snapshot, ordered by queue and day, and the steps that do it."""
    over = _over_limits(table.files(), policy)
    whole = [file for file in files if (file.queue, file.day) in over]
    steps = [FileReplacement(tuple(of_day)) for _, of_day in groupby(whole, lambda file: (file.queue, file.day))]
    found = [(file, _WHOLE_DAY, file.rows, file.bytes) for file in whole]
    if policy.rules:
        change = RowChange(lambda df: decide(df, policy.rules, now), _redacted)
        rest = [file for file in files if (file.queue, file.day) not in over]
        by_rule = change.find(spark, table, rest, F.sum("body_bytes").alias("bytes"))
        steps += change.steps(spark, table, by_rule)
        found += [(file, row[ACTION], row.messages, row.bytes) for file, row in by_rule]
    messages, sizes = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
    for file, action, rows, size in found:
        messages[file.queue, file.day, action] += rows
        sizes[file.queue, file.day, action] += size
    return [
        PlannedChange(queue=place[0], day=place[1], action=place[2], messages=messages[place], bytes=sizes[place])
        for place in sorted(messages)
    ], steps


def phases(
    spark: SparkSession,
    table: ArchiveTable,
    policy: Retention,
    now: datetime,
    counts: RewriteCounts,
    changes: list[PlannedChange],
) -> Iterator[str]:
    """Apply a policy, and delete the replaced files. What is found is added to `changes`."""

    def steps(files: Sequence[DataFile]) -> list[FileReplacement]:
        found, todo = plan(spark, table, policy, now, files)
        changes.extend(found)
        return todo

    yield from work(table, "retain", steps, counts)
    if counts.steps:
        table.vacuum(at_once=True)
        yield "vacuumed"


@describing("retain")
def run(
    spark: SparkSession, path: str, policy: Retention, now: datetime, *, apply: bool = False,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[list[PlannedChange], dict[str, Any]]:  # fmt: skip
    """Return the plan and counts of the changes.

    Nothing is changed unless `apply` is true. Raises ArchiveNotFound, SparkFailed.

    The tables of `decode` follow the archive. The replaced files are deleted at once, so that nothing deleted stays on
    the disk. Time travel ends there.
    """
    table, counts, copied = open_table(path), RewriteCounts(), ChangedCopies()
    table.check_columns(ESSENTIAL)
    table.check_writable()  # the files of such a table do not say what would be done, either
    changes: list[PlannedChange] = []
    if not apply:
        changes = plan(spark, table, policy, now, table.files())[0]
    else:
        with lease(table.folder, "retain"):
            table.refresh()  # what `decode` has read meanwhile has copies
            if places(table.folder):
                messages = _with_actions(read_files(spark, table, table.files()), table.files(), policy, now)
                for _ in follow(table, "retain", messages, copied):  # first: the archive says which messages they are
                    pass
            for _ in phases(spark, table, policy, now, counts, changes):
                progress(counts.steps, counts.steps)
    return changes, {
        "days": len(counts.days),
        "deleted": counts.removed,
        "redacted": counts.changed,
        "copies_deleted": copied.deleted,
        "copies_redacted": copied.redacted,
        "copies_missing": copied.missing,
    }


def _with_actions(df: DataFrame, files: Iterable[DataFile], policy: Retention, now: datetime) -> DataFrame:
    """Add what happens to the copies of messages. The copy of a message that was redacted earlier is redacted too."""
    over = _over_limits(files, policy)
    whole = [(F.col("queue") == queue) & (F.col("day").cast("string") == day) for queue, day in over]
    of_day = F.when(reduce(or_, whole, F.lit(False)), F.lit(DELETE))
    again = F.when(is_redacted(), F.lit(REDACT))
    return decide(df, policy.rules, now).withColumn(ACTION, F.coalesce(of_day, F.col(ACTION), again))
