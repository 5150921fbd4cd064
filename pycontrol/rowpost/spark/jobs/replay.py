"""Send archived messages to queues again, each exactly once for each job key.

`Replay` describes a job, `run` executes it in steps, and `rehearse` counts what it would send. The selected messages
are stored in the archive's metadata folder until all of them are sent. A restarted job therefore sends the rest of the
same selection, without messages that were archived later. The ledger in the database ensures that each step is sent
once, however often it is attempted.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from rowpost.archive.folder import ArchiveFolder
from rowpost.errors import InvalidMessage, SparkFailed
from rowpost.spark.archive.headers import parse_headers, readable_headers
from rowpost.spark.archive.replays import ReplayStore
from rowpost.spark.archive.schemas import ESSENTIAL
from rowpost.spark.describing import describing
from rowpost.spark.jobs.archive import given, read_archive
from rowpost.spark.session import activate
from rowpost.wire import headers as wire

__all__ = ["REPLAY_HEADER", "Replay", "choose", "filtered", "number", "rehearse", "run", "send", "stored"]

#: The header with the key of the job that replayed a message.
REPLAY_HEADER = "Rowpost.Replay"
RATE_STEP_S = 5.0  # duration of one step of a rate
ROWS_PER_PARTITION, MAX_PARTITIONS = 25_000, 8
# headers that failures, retries and audits add: a replayed message is handled as a new one
_DROPPED = (
    wire.FAILED_QUEUE, wire.TIME_OF_FAILURE, wire.RETRIES, wire.RETRIES_TIMESTAMP, wire.IMMEDIATE_RETRIES,
    wire.PROCESSING_STARTED, wire.PROCESSING_ENDED, wire.PROCESSING_ENDPOINT, wire.PROCESSING_MACHINE,
)  # fmt: skip
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
#: The columns of the chosen messages; the step is the name of their folder.
_STORED = "id string, headers string, body binary, row_version bigint, destination string, step int"
_FIXED_BY_KEY = {
    "where": "the filter",
    "limit": "the limit",
    "queue": "the queue",
    "rate": "the rate",
    "ramp": "the ramp",
    "max_depth": "the depth",
}
DEPTH_INTERVAL_S = 1.0  # time between two looks at a destination that has too many messages waiting


@dataclass(frozen=True)
class Replay:
    """Which messages to send again, and how fast. Each message is sent once for each key."""

    key: str
    queue: str | None = None  # None: the one in which each message failed
    where: str | None = None  # a Spark SQL condition on schemas.ARCHIVE
    limit: int | None = None  # the maximum number of messages, the oldest first
    rate: float | None = None  # messages per second
    ramp: tuple[int, ...] = ()  # messages in the first steps
    pause_s: float = 10.0  # after each step of the ramp
    max_depth: int | None = None  # messages that may wait in the destination when a step is sent, with its own

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.key):
            raise InvalidMessage(
                f"The key {self.key!r} is not valid: use 1 to 80 letters, digits, dots, hyphens and underscores, "
                "starting with a letter or digit."
            )
        if self.max_depth is not None and max(self.ramp, default=0) > self.max_depth:
            raise InvalidMessage(
                f"A step of the ramp has {max(self.ramp)} messages, but at most {self.max_depth} may wait in the "
                "destination. Use smaller steps."
            )

    @property
    def step_size(self) -> int | None:
        """Messages in one step after the ramp; None for all remaining messages.

        Half of `max_depth` lets receivers work meanwhile.
        """
        limits = [self.rate * RATE_STEP_S] if self.rate else []
        limits += [self.max_depth / 2] if self.max_depth else []
        return max(1, round(min(limits))) if limits else None


def choose(df: DataFrame, replay: Replay) -> DataFrame:
    """Select the messages to send, of each id the latest copy, with their destination.

    Raises InvalidMessage for a condition that is not valid.
    """
    found = df if replay.where is None else filtered(df, replay.where, f"filter {replay.where!r}")
    # without bodies, which a window would shuffle and copy
    last = F.max(F.struct("archived_at", "row_version", "queue")).alias("last")
    latest = found.groupBy("id").agg(last).select("id", "last.*")
    found = found.join(latest, ["id", "archived_at", "row_version", "queue"], "left_semi")
    destination = F.col("failed_queue") if replay.queue is None else F.lit(replay.queue)
    found = found.select(
        "id", _headers(replay.key).alias("headers"), "body", "row_version", "day", destination.alias("destination")
    )
    found = found.where(F.col("destination").isNotNull())
    return found if replay.limit is None else found.orderBy("day", "row_version", "id").limit(replay.limit)


def filtered(df: DataFrame, where: str, what: str) -> DataFrame:
    """Return the rows that meet a condition.

    Raises InvalidMessage, which calls it `what`, for a condition that is not valid.
    """
    try:
        return df.where(where)
    except (AnalysisException, ParseException) as error:
        first = str(error).strip().splitlines()[0].partition("] ")[2] or str(error).splitlines()[0]
        raise InvalidMessage(f"The {what} is not valid: {first} The columns are {', '.join(df.columns)}.") from error


def _headers(key: str) -> Column:
    """Remove the headers of the earlier failure. A task raises InvalidMessage for headers that no endpoint can read."""
    headers = readable_headers(F.col("headers"), F.col("id"))
    kept = F.map_filter(
        headers, lambda name, _: ~name.isin(*_DROPPED, REPLAY_HEADER) & ~name.startswith(wire.EXCEPTION_INFO)
    )
    marked = F.map_concat(kept, F.create_map(F.lit(REPLAY_HEADER), F.lit(key)))
    return F.coalesce(F.to_json(marked, {"ignoreNullFields": "false"}), F.col("headers"))


def number(df: DataFrame, replay: Replay) -> DataFrame:
    """Add the number of the `step`: first the steps of the ramp, then steps of equal size.

    The oldest messages come first.
    """
    if not replay.ramp and replay.step_size is None:
        return df.withColumn("step", F.lit(0))
    place = F.row_number().over(Window.orderBy("day", "row_version", "id"))
    before, step = sum(replay.ramp), F.lit(len(replay.ramp))
    if replay.step_size is not None:
        step += F.floor((place - 1 - before) / replay.step_size).cast("int")
    for index in reversed(range(len(replay.ramp))):
        step = F.when(place <= sum(replay.ramp[: index + 1]), F.lit(index)).otherwise(step)
    return df.withColumn("step", step)


def stored(spark: SparkSession, rows: str) -> DataFrame:
    """Read the chosen messages of an attempt.

    `erase` may have emptied a step, or all of them, so that no file tells the columns.
    """
    return spark.read.schema(_STORED).parquet(rows)


def _partitions_for(rows: int) -> int:
    """Return the number of partitions in which so many messages are sent.

    It depends on nothing else, as the ledger requires.

    >>> _partitions_for(0), _partitions_for(25_001), _partitions_for(10**9)
    (1, 2, 8)
    """
    return min(max(-(-rows // ROWS_PER_PARTITION), 1), MAX_PARTITIONS)


def send(df: DataFrame, queue: str, key: str, partitions: int, environment: str | None = None) -> None:
    """Write id, headers and body to a queue, once for each `key`. Equal rows always fall into equal partitions."""
    activate(df.sparkSession)
    ordered = df.repartition(partitions, "id").sortWithinPartitions("row_version", "id")
    options = given(queue=queue, jobKey=key, environment=environment)
    ordered.select("id", "headers", "body").write.format("rowpost").mode("append").options(**options).save()


@describing("replay")
def run(
    spark: SparkSession,
    path: str,
    replay: Replay,
    *,
    environment: str | None = None,
    resolve_queues: Callable[[Sequence[str]], Mapping[str, str]],
    progress: Callable[[int, int], None] = lambda done, of: None,
    depth: Callable[[str], int] = lambda queue: 0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Replay messages, or continue an earlier run of the same key. Returns counts.

    `resolve_queues` maps the destinations in the messages to registered queues, or raises QueueNotFound. `depth`
    returns how many messages wait in a queue. Raises ArchiveNotFound, InvalidMessage for a condition that is not valid,
    and SparkFailed if the key was used for another replay.
    """
    store = ReplayStore(ArchiveFolder(path), replay.key)
    plan = _plan(spark, path, store, replay, resolve_queues)
    done = store.sent() if plan["messages"] else {"steps": 0, "messages": 0}
    before, began = done["messages"], clock()
    for index in range(done["steps"], len(plan["steps"])):
        of_step = {row["destination"]: row["messages"] for row in plan["steps"][index]}
        progress(done["messages"], plan["messages"])
        with store.unless_cancelled():
            for destination, messages in of_step.items():
                queue = plan["queues"][destination]
                while replay.max_depth is not None and depth(queue) + messages > replay.max_depth:
                    sleep(DEPTH_INTERVAL_S)
                    store.check_not_cancelled()
                rows = stored(spark, store.rows(plan["attempt"])).where(
                    (F.col("step") == index) & (F.col("destination") == destination)
                )
                short = hashlib.sha256(queue.encode()).hexdigest()[:12]  # a job key is limited to 200 characters
                send(rows, queue, f"{replay.key}/{index}/{short}", _partitions_for(messages), environment)
        done = {"steps": index + 1, "messages": done["messages"] + sum(of_step.values())}
        store.note_sent(done)
        if index + 1 < len(plan["steps"]):
            pause = replay.pause_s if index < len(replay.ramp) else 0.0
            if replay.rate:
                pause = max(pause, began + (done["messages"] - before) / replay.rate - clock())
            if pause > 0:
                sleep(pause)
    progress(plan["messages"], plan["messages"])
    store.finish()
    return {
        "key": replay.key,
        "messages": plan["messages"],
        "sent_now": done["messages"] - before,
        "sent_before": before,
        "steps": len(plan["steps"]),
        "queues": sorted(set(plan["queues"].values())),
    }


def _known_plan(store: ReplayStore, replay: Replay) -> dict[str, Any] | None:
    """Return the plan that an earlier run of the key stored, or None.

    Raises SparkFailed if that run was another replay, or was cancelled.
    """
    known, asked = store.plan(), _asked(replay)
    before = asked if known is None else known["asked"]
    if differing := [words for name, words in _FIXED_BY_KEY.items() if before.get(name) != asked[name]]:
        raise SparkFailed(
            f"The key {replay.key!r} was already used for another replay: {' and '.join(differing)} differ. "
            "Nothing was sent. Use a new key, or repeat the earlier command unchanged."
        )
    store.check_not_cancelled()
    return known


def _asked(replay: Replay) -> dict[str, Any]:
    return {name: getattr(replay, name) for name in _FIXED_BY_KEY} | {"ramp": list(replay.ramp)}


def _plan(
    spark: SparkSession,
    path: str,
    store: ReplayStore,
    replay: Replay,
    resolve_queues: Callable[[Sequence[str]], Mapping[str, str]],
) -> dict[str, Any]:
    """Return the plan that an earlier run of this key stored, or choose the messages and store one."""
    known = _known_plan(store, replay)
    if known is not None:
        return known
    chosen = number(choose(read_archive(spark, path, ESSENTIAL), replay), replay)
    # resolve the destinations before writing anything
    queues = dict(resolve_queues([row.destination for row in chosen.select("destination").distinct().collect()]))
    attempt = store.new_attempt()
    writer = chosen.drop("day").write.partitionBy("step")
    writer.option("parquet.enable.dictionary", "false").parquet(store.rows(attempt))  # ids and bodies do not repeat
    place = ("step", "destination")
    counted = stored(spark, store.rows(attempt)).groupBy(*place).count().orderBy(*place).collect()
    steps: list[list[dict[str, Any]]] = [[] for _ in range(max((row.step + 1 for row in counted), default=0))]
    for row in counted:
        steps[row.step].append({"destination": row.destination, "messages": row["count"]})
    messages = sum(row["messages"] for step in steps for row in step)
    plan = {"asked": _asked(replay), "attempt": attempt, "messages": messages, "queues": queues, "steps": steps}
    if not messages:  # a key that selects nothing can be used again
        store.discard(attempt)
        return plan
    store.create_plan(plan)
    known = _known_plan(store, replay)
    if known is None:
        raise SparkFailed(
            f"Another run of the replay {replay.key!r} is storing its plan now, or was killed meanwhile. Nothing was "
            f"sent. Run the command again; if this remains, run: rowpost spark replays cancel {path} {replay.key}"
        )
    if known["attempt"] != attempt:  # another run was faster
        store.discard(attempt)
    return known


def rehearse(
    spark: SparkSession, path: str, replay: Replay, resolve_queues: Callable[[Sequence[str]], Mapping[str, str]]
) -> dict[str, Any]:
    """Count what a replay would send: all messages, those that earlier runs sent, and groups of those that are left.

    Raises what `run` raises.
    """
    store = ReplayStore(ArchiveFolder(path), replay.key)
    plan, done = _known_plan(store, replay), store.sent()
    groups: list[Row] = []
    if plan is None:
        groups = _groups(choose(read_archive(spark, path, ESSENTIAL), replay))
    elif done["steps"] < len(plan["steps"]):
        groups = _groups(stored(spark, store.rows(plan["attempt"])).where(F.col("step") >= done["steps"]))
    queues = resolve_queues(sorted({row.destination for row in groups}))
    return {
        "key": replay.key,
        "dry_run": True,
        "messages": sum(row.messages for row in groups),
        "sent_before": done["messages"],
        "would_send": [
            {"queue": queues[to], "message_type": kind, "messages": messages, "body_bytes": size}
            for to, kind, messages, size in groups
        ],
    }


def _groups(chosen: DataFrame) -> list[Row]:
    typed = parse_headers(chosen.select("id", "headers", "body", "destination"))
    sums = F.count(F.lit(1)).alias("messages"), F.sum("body_bytes").alias("body_bytes")
    counted = typed.groupBy("destination", "message_type").agg(*sums)
    return counted.orderBy(F.desc("messages"), "destination", "message_type").collect()
