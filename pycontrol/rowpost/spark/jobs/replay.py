"""Archived messages back into queues: chosen once, then sent step by step, each step exactly once by the job's key.

What was chosen is kept beside the archive until all of it is sent: a job that is started again sends the rest of it,
and not what the archive has got since. The ledger in the database makes each step count once, however often it is tried.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Window
from pyspark.sql import functions as F

from rowpost.errors import InvalidMessage, SparkFailed
from rowpost.spark.archive.folder import OWN, ArchiveFolder
from rowpost.spark.archive.headers import read_headers
from rowpost.spark.jobs.archive import read_archive
from rowpost.spark.session import activate
from rowpost.wire.headers import (
    EXCEPTION_INFO,
    FAILED_QUEUE,
    IMMEDIATE_RETRIES,
    PROCESSING_ENDED,
    PROCESSING_ENDPOINT,
    PROCESSING_MACHINE,
    PROCESSING_STARTED,
    RETRIES,
    RETRIES_TIMESTAMP,
    TIME_OF_FAILURE,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["JOB", "Replay", "choose", "number", "run", "send"]

#: the header that says which job replayed a message
JOB = "Rowpost.Replay"
INTERVAL = 5.0  # seconds between two steps of a rate
ROWS_A_PARTITION, MOST_PARTITIONS = 25_000, 8
# what failures, retries and audits wrote: a message that is replayed has not been handled yet
_DROPPED = (
    FAILED_QUEUE, TIME_OF_FAILURE, RETRIES, RETRIES_TIMESTAMP, IMMEDIATE_RETRIES,
    PROCESSING_STARTED, PROCESSING_ENDED, PROCESSING_ENDPOINT, PROCESSING_MACHINE,
)  # fmt: skip
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_WORDS = {"where": "the filter", "limit": "the limit", "queue": "the queue", "rate": "the rate", "ramp": "the ramp"}


@dataclass(frozen=True)
class Replay:
    """What to bring back, and how fast.

    `where` is a condition of Spark SQL on schemas.ARCHIVE. `queue` None sends each message to where it failed.
    `rate` is messages a second, `ramp` the sizes of the first steps, with `pause` seconds after each.
    """

    key: str
    queue: str | None = None
    where: str | None = None
    limit: int | None = None
    rate: float | None = None
    ramp: tuple[int, ...] = ()
    pause: float = 10.0

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.key):
            raise InvalidMessage(f"The key {self.key!r} must be up to 80 letters, digits, dots, dashes and underscores.")

    @property
    def step_size(self) -> int | None:
        """Messages of a step after the ramp; None for all at once."""
        return max(1, round(self.rate * INTERVAL)) if self.rate else None


def choose(df: DataFrame, replay: Replay) -> DataFrame:
    """Archived messages as they are sent: id, headers, body, row_version, destination; each id once, its latest copy.

    Raises InvalidMessage for a condition that cannot be read.
    """
    try:
        found = df if replay.where is None else df.where(replay.where)
    except (AnalysisException, ParseException) as error:
        first = str(error).strip().splitlines()[0].partition("] ")[2] or str(error).splitlines()[0]
        columns = ", ".join(df.columns)
        raise InvalidMessage(f"The filter {replay.where!r} cannot be used: {first} The columns are {columns}.") from error
    latest = F.row_number().over(Window.partitionBy("id").orderBy(F.desc("archived_at"), F.desc("row_version")))
    found = found.withColumn("latest", latest).where("latest = 1")
    destination = F.col("failed_queue") if replay.queue is None else F.lit(replay.queue)
    found = found.select("id", _headers(replay.key).alias("headers"), "body", "row_version", "day", destination.alias("destination"))
    found = found.where(F.col("destination").isNotNull())
    return found if replay.limit is None else found.orderBy("day", "row_version", "id").limit(replay.limit)


def _headers(key: str) -> Column:
    """Without what described failures; those that cannot be read stay as they are."""
    headers = read_headers(F.col("headers"))
    kept = F.map_filter(headers, lambda name, _: ~name.isin(*_DROPPED, JOB) & ~name.startswith(EXCEPTION_INFO))
    marked = F.map_concat(kept, F.create_map(F.lit(JOB), F.lit(key)))
    return F.coalesce(F.to_json(marked, {"ignoreNullFields": "false"}), F.col("headers"))


def number(df: DataFrame, replay: Replay) -> DataFrame:
    """Adds `step`: the ramp's first, then of equal size; the oldest messages first."""
    if not replay.ramp and replay.step_size is None:
        return df.withColumn("step", F.lit(0))
    place = F.row_number().over(Window.orderBy("day", "row_version", "id"))
    before, step = sum(replay.ramp), F.lit(len(replay.ramp))
    if replay.step_size is not None:
        step += F.floor((place - 1 - before) / replay.step_size).cast("int")
    for index in reversed(range(len(replay.ramp))):
        step = F.when(place <= sum(replay.ramp[: index + 1]), F.lit(index)).otherwise(step)
    return df.withColumn("step", step)


def send(df: DataFrame, queue: str, key: str, partitions: int, environment: str | None = None) -> None:
    """Writes id, headers, body to a queue, once by `key`: the same rows fall into the same partitions every time."""
    activate(df.sparkSession)
    ordered = df.repartition(partitions, "id").sortWithinPartitions("row_version", "id")
    writer = ordered.select("id", "headers", "body").write.format("rowpost").mode("append").option("queue", queue)
    writer = writer.option("jobKey", key).option("jobParts", partitions)
    (writer if environment is None else writer.option("environment", environment)).save()


def run(
    spark: SparkSession,
    path: str,
    replay: Replay,
    *,
    environment: str | None = None,
    must_exist: Callable[[Sequence[str]], Mapping[str, str]],
    progress: Callable[[int, int], None] = lambda done, of: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, object]:
    """Replays, or goes on where an earlier run of the same key stopped. Returns counts.

    `must_exist` gets the destinations as the messages name them, returns their queues, and raises QueueNotFound.

    Raises ArchiveNotFound, InvalidMessage, SparkFailed.
    """
    folder = ArchiveFolder(path)
    plan = _plan(spark, folder, replay, must_exist)
    place = f"replays/{replay.key}"
    done = (folder.read(f"{place}/sent.json") or {"steps": 0, "messages": 0}) if plan["messages"] else {"steps": 0, "messages": 0}
    before, began = done["messages"], clock()
    for index in range(done["steps"], len(plan["steps"])):
        of_step = {row["destination"]: row["messages"] for row in plan["steps"][index]}
        progress(done["messages"], plan["messages"])
        rows = spark.read.parquet(f"{folder.path}/{OWN}/{place}/rows/step={index}") if of_step else None
        for destination, messages in of_step.items():
            partitions = min(max(-(-messages // ROWS_A_PARTITION), 1), MOST_PARTITIONS)
            queue = plan["queues"][destination]
            send(rows.where(F.col("destination") == destination), queue, f"{replay.key}/{index}/{_short(queue)}", partitions, environment)
        done = {"steps": index + 1, "messages": done["messages"] + sum(of_step.values())}
        folder.write(f"{place}/sent.json", done)
        if index + 1 < len(plan["steps"]):
            _wait(replay, index, done["messages"] - before, began, clock, sleep)
    progress(plan["messages"], plan["messages"])
    folder.remove(f"{place}/rows" if plan["messages"] else place)
    return {"key": replay.key, "messages": plan["messages"], "sent_now": done["messages"] - before, "sent_before": before,
            "steps": len(plan["steps"]), "queues": sorted(set(plan["queues"].values()))}  # fmt: skip


def _short(queue: str) -> str:
    """A queue's part of a key, which has 200 characters at most."""
    return hashlib.sha256(queue.encode()).hexdigest()[:12]


def _wait(replay: Replay, index: int, sent: int, began: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
    """After a step of the ramp its pause; then as long as the rate wants."""
    pause = replay.pause if index < len(replay.ramp) else 0.0
    if replay.rate:
        pause = max(pause, began + sent / replay.rate - clock())
    if pause > 0:
        sleep(pause)


def _plan(spark: SparkSession, folder: ArchiveFolder, replay: Replay, must_exist: Callable[[Sequence[str]], Mapping[str, str]]) -> dict:
    """What an earlier run of this key chose; else it is chosen, and kept."""
    place = f"replays/{replay.key}"
    asked = {name: value for name, value in asdict(replay).items() if name in _WORDS} | {"ramp": list(replay.ramp)}
    known = folder.read(f"{place}/plan.json")
    if known is not None:
        differing = [words for name, words in _WORDS.items() if known["asked"][name] != asked[name]]
        if differing:
            raise SparkFailed(
                f"The key {replay.key!r} was used for another replay: {' and '.join(differing)} differ. "
                "Nothing was sent. Take a new key, or repeat the command as it was."
            )
        return known
    rows = f"{folder.path}/{OWN}/{place}/rows"
    chosen = number(choose(read_archive(spark, folder.path), replay), replay)
    # where they are to go is looked up before anything is written
    queues = dict(must_exist([row.destination for row in chosen.select("destination").distinct().collect()]))
    chosen.drop("day").write.mode("overwrite").partitionBy("step").parquet(rows)
    steps: list[list[dict]] = []
    if queues:
        counted = spark.read.parquet(rows).groupBy("step", "destination").count().orderBy("step", "destination").collect()
        steps = [[] for _ in range(max(row.step for row in counted) + 1)]
        for row in counted:
            steps[row.step].append({"destination": row.destination, "messages": row["count"]})
    messages = sum(row["messages"] for step in steps for row in step)
    plan = {"asked": asked, "messages": messages, "queues": queues, "steps": steps}
    if messages:  # a key that chose nothing is not used
        folder.write(f"{place}/plan.json", plan)
    return plan
