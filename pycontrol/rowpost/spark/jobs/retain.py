"""Delete or redact archived messages by the rules of a policy, a YAML file with rules and limits (see `Rule` and
`Limit`).

The first rule that matches a message applies. `plan` computes what a run would do, and `run` with `apply` does it. A
second run changes nothing more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from itertools import groupby
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from msgspec import Meta
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from rowpost.archive.maintenance_lock import maintenance_lock
from rowpost.archive.table import ArchiveTable, DataFile, open_table
from rowpost.settings.yaml_file import read_root
from rowpost.settings.yaml_node import Node, decode
from rowpost.spark.archive.headers import read_headers
from rowpost.spark.archive.records import places
from rowpost.spark.archive.rows import read_files
from rowpost.spark.archive.schemas import ESSENTIAL
from rowpost.spark.describing import describing
from rowpost.spark.jobs.maintenance import (
    ACTION,
    DELETE,
    REDACT,
    ChangedCopies,
    FileReplacement,
    RewriteCounts,
    RowChange,
    follow,
    work,
)
from rowpost.wire import headers as wire

__all__ = [
    "Limit",
    "PlannedChange",
    "Retention",
    "Rule",
    "decide",
    "is_redacted",
    "pattern",
    "plan",
    "read_policy",
    "run",
]

_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_DAYS = {"d": 1, "w": 7}
_Age = Annotated[str, Meta(pattern=r"^[0-9]{1,6}[dw]\Z", description="a number of days or weeks, such as 90d or 12w")]
_Size = Annotated[str, Meta(pattern=r"^[0-9]{1,9} ?[KMGT]?B\Z", description="a size, such as 500KB, 1MB or 50GB")]
#: The header that marks a redacted message.
REDACTED_HEADER = "Rowpost.Redacted"
_KEPT_HEADERS = (
    wire.MESSAGE_ID, wire.CONVERSATION_ID, wire.RELATED_TO, wire.MESSAGE_INTENT, wire.ENCLOSED_MESSAGE_TYPES,
    wire.CONTENT_TYPE, wire.ORIGINATING_ENDPOINT, wire.PROCESSING_ENDPOINT, wire.TIME_SENT, wire.PROCESSING_STARTED,
    wire.PROCESSING_ENDED, wire.DELIVER_AT, wire.TIME_OF_FAILURE, wire.FAILED_QUEUE, wire.EXCEPTION_TYPE,
)  # fmt: skip
_REMOVED_COLUMNS = ("body", "reply_to_address", "sending_machine", "machine", "exception_message")
_WHOLE_DAY = "limit"


@dataclass(frozen=True)
class Rule:
    """Which messages to delete or redact: patterns in which * matches any text, an age, and the bytes of the body."""

    action: Literal["delete", "redact"]
    queue: str = "*"
    message_type: str = "*"
    older_than: timedelta | None = None
    larger_than: int | None = None


@dataclass(frozen=True)
class Limit:
    """The maximum total size, in bytes, of the files of each matching queue."""

    total: int
    queue: str = "*"


@dataclass(frozen=True)
class Retention:
    """The rules and limits of one file."""

    rules: tuple[Rule, ...] = ()
    limits: tuple[Limit, ...] = ()


def read_policy(path: Path) -> Retention:
    """Read a policy from a YAML file. Raises SettingsError, which names file, rule and key."""
    root = read_root(path)
    policy = Retention(tuple(map(_rule, root.items("rules"))), tuple(map(_limit, root.items("limits"))))
    root.check_keys()
    if not policy.rules and not policy.limits:
        raise root.error("", "has neither rules nor limits: nothing would be done")
    return policy


def _rule(node: Node) -> Rule:
    given = {
        key: read(node, key) for key, read in (("older_than", _days), ("larger_than", _bytes)) if key in node.values
    }
    rule = decode(node, Rule, given=given)
    if node.values.keys() <= {"action"}:
        raise node.error("", f'would {rule.action} every message of every queue: say which, with queue: "*" if all')
    return rule


def _limit(node: Node) -> Limit:
    return decode(node, Limit, given={"total": _bytes(node, "total")})


def _days(node: Node, key: str) -> timedelta:
    text = node.take(key, _Age)
    return timedelta(days=int(text[:-1]) * _DAYS[text[-1]])


def _bytes(node: Node, key: str) -> int:
    number = (text := node.take(key, _Size)).rstrip(" BKMGT")
    return int(number) * _UNITS[text.removeprefix(number).strip()]


def pattern(glob: str) -> str:
    """Convert a glob pattern to a regular expression that Java and Python read alike.

    >>> re.fullmatch(pattern("Shop.P*"), "Shop.Place") is not None
    True
    """
    return "^" + "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in glob) + "$"


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
    """Return the columns without what can name people and machines. What the jobs count and measure stays."""
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
    """Return the plan and counts of the changes, which are made with `apply` only. Raises ArchiveNotFound, SparkFailed.

    The tables of `decode` follow. The replaced files are deleted at once, so that nothing deleted stays: time travel
    ends.
    """
    table, counts, copied = open_table(path), RewriteCounts(), ChangedCopies()
    table.check_columns(ESSENTIAL)
    table.check_writable()  # the files of such a table do not say what would be done, either
    changes: list[PlannedChange] = []
    if not apply:
        changes = plan(spark, table, policy, now, table.files())[0]
    else:
        with maintenance_lock(table.folder, "retain"):
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
