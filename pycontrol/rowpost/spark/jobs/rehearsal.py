"""Count what a replay would send, by destination and message type. It sends and stores nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rowpost.archive.folder import ArchiveFolder
from rowpost.spark.archive.headers import parse_headers
from rowpost.spark.archive.replays import ReplayStore
from rowpost.spark.archive.schemas import ESSENTIAL
from rowpost.spark.jobs.archive import read_archive
from rowpost.spark.jobs.replay import Replay, choose, known_plan

__all__ = ["rehearse"]


def rehearse(spark: SparkSession, path: str, replay: Replay, resolve_queues: Callable[[Sequence[str]], Mapping[str, str]]) -> dict[str, Any]:
    """Return the counts of a replay: all messages, those that earlier runs of the key sent, and groups of those that are left.

    Raises:
        ArchiveNotFound: there is no archive in `path`.
        InvalidMessage: the condition is not valid.
        QueueNotFound: a destination does not exist.
        SparkFailed: the key was used for another replay.
    """
    store = ReplayStore(ArchiveFolder(path), replay.key)
    plan = known_plan(store, replay)
    left, sent = (choose(read_archive(spark, path, ESSENTIAL), replay), 0) if plan is None else _left(spark, store, plan)
    groups = [] if left is None else _groups(left)
    queues = resolve_queues(sorted({group["queue"] for group in groups}))
    found = [{**group, "queue": queues[group["queue"]]} for group in groups]
    return {"key": replay.key, "dry_run": True, "messages": sum(group["messages"] for group in found), "sent_before": sent, "would_send": found}


def _left(spark: SparkSession, store: ReplayStore, plan: Mapping[str, Any]) -> tuple[DataFrame | None, int]:
    """Return the messages of a plan that are not sent yet, or None, and how many are sent."""
    done = store.sent()
    if done["steps"] >= len(plan["steps"]):
        return None, done["messages"]
    return spark.read.parquet(store.rows(plan["attempt"])).where(F.col("step") >= done["steps"]), done["messages"]


def _groups(chosen: DataFrame) -> list[dict[str, Any]]:
    typed = parse_headers(chosen.select("id", "headers", "body", "destination"))
    counted = typed.groupBy("destination", "message_type").agg(F.count(F.lit(1)).alias("messages"), F.sum("body_bytes").alias("bytes"))
    ordered = counted.orderBy(F.desc("messages"), "destination", "message_type").collect()
    return [{"queue": row.destination, "message_type": row.message_type, "messages": row.messages, "body_bytes": row.bytes} for row in ordered]
