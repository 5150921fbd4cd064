"""The options of the source and the sink, read once and refused in words; named as Spark's Kafka source names its own.

Neither a URL nor a password is an option: `environment` names a file of settings, and the file names variables of the
process environment, on the driver and on every executor.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rowpost.errors import SettingsError

__all__ = ["ReadOptions", "WriteOptions", "read_options", "write_options"]

EARLIEST, LATEST, SETTLED = "earliest", "latest", "settled"
TAIL, DRAIN = "tail", "drain"
LEDGER, STAGED = "ledger", "staged"
DRAIN_LIMIT = 50_000
DEFAULT_BATCH_BYTES = 4 << 20


@dataclass(frozen=True)
class ReadOptions:
    """How a queue is read. Offsets are row versions, or words; `limit` is rows a batch of a stream, None for all."""

    queue: str
    environment: str | None = None
    mode: str = TAIL
    starting: str | int = EARLIEST
    ending: str | int = LATEST
    limit: int | None = None
    partitions: int = 2
    fail_on_data_loss: bool = True
    #: seconds that a read waits for transactions which were writing when it began
    settle: float = 10.0
    batch_bytes: int = DEFAULT_BATCH_BYTES
    allow_consumers: bool = False
    take_over: bool = False


@dataclass(frozen=True)
class WriteOptions:
    """How a DataFrame is written into a queue. `job_key` names the job: written once, however often it runs.

    `job_parts` is the number of partitions that the caller has made; the ledger needs it beside a key, for a task cannot
    see it, and a job in other partitions must be refused before its first one is sent.
    """

    queue: str
    environment: str | None = None
    job_key: str | None = None
    job_parts: int | None = None
    mode: str = LEDGER
    messages_per_call: int = 1000


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Reads a source's options. Raises SettingsError."""
    mode = _choice(options, "mode", (TAIL, DRAIN), TAIL)
    limit = _whole(options, "maxOffsetsPerTrigger", at_least=1)
    return ReadOptions(
        queue=_queue(options),
        environment=_environment(options),
        mode=mode,
        starting=_offset(options, "startingOffsets", EARLIEST, (EARLIEST, LATEST)),
        ending=_offset(options, "endingOffsets", LATEST, (LATEST, SETTLED)),
        limit=DRAIN_LIMIT if limit is None and mode == DRAIN else limit,
        partitions=_whole(options, "minPartitions", at_least=1) or os.cpu_count() or 1,
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        settle=_seconds(options, "settleSeconds", 10.0),
        batch_bytes=_whole(options, "maxBytesPerBatch", at_least=1024) or DEFAULT_BATCH_BYTES,
        allow_consumers=_flag(options, "allowConsumers", False),
        take_over=_flag(options, "takeOver", False),
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Reads a sink's options. Raises SettingsError."""
    found = WriteOptions(
        queue=_queue(options),
        environment=_environment(options),
        job_key=options.get("jobKey"),
        job_parts=_whole(options, "jobParts", at_least=1),
        mode=_choice(options, "mode", (LEDGER, STAGED), LEDGER),
        messages_per_call=_whole(options, "messagesPerCall", at_least=1) or 1000,
    )
    if found.job_key and found.mode == LEDGER and found.job_parts is None:
        raise SettingsError(
            "A job with a jobKey may run again, and its partitions must be the same then: say how many, "
            'df.repartition(8, "id") and .option("jobParts", 8); or .option("mode", "staged"), which needs none.'
        )
    return found


def _queue(options: Mapping[str, str]) -> str:
    queue = options.get("queue") or options.get("subscribe")
    if not queue:
        raise SettingsError('Say which queue: .option("queue", "audit"). rowpost queue list shows those that there are.')
    return queue


def _environment(options: Mapping[str, str]) -> str | None:
    """The file's whole path where there is one: a worker's own folder may be another."""
    named = options.get("environment")
    return str(Path(named).resolve()) if named and Path(named).is_file() else named


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, ...], default: str) -> str:
    value = options.get(name, default).lower()
    if value not in choices:
        raise SettingsError(f"The option {name} is {value!r}: write {' or '.join(choices)}.")
    return value


def _offset(options: Mapping[str, str], name: str, default: str, words: tuple[str, ...]) -> str | int:
    value = options.get(name, default).strip().lower()
    if value in words:
        return value
    if value.isdecimal():
        return int(value)
    raise SettingsError(f"The option {name} is {value!r}: write {', '.join(words)} or a row version.")


def _whole(options: Mapping[str, str], name: str, *, at_least: int) -> int | None:
    value: Any = options.get(name)
    if value is None:
        return None
    if not str(value).strip().isdecimal() or int(value) < at_least:
        raise SettingsError(f"The option {name} is {value!r}: write a whole number, {at_least} or more.")
    return int(value)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    value = options.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise SettingsError(f"The option {name} is {value!r}: write true or false.")
    return value == "true"


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    value = options.get(name, default)
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise SettingsError(f"The option {name} is {value!r}: write seconds, such as 2.5.")
    return seconds
