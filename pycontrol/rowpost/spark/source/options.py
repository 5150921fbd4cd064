"""Parse and check the options of the source and the sink. Option names follow Spark's Kafka source where it has them.

The list of options is closed (option_names.py). The option `environment` names a settings file. That file names environment
variables, which the driver and every executor must have.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from rowpost.errors import SettingsError
from rowpost.spark.source.option_names import BATCH, STREAM, STREAM_WRITE, WRITE, check_names, check_no_secrets

__all__ = ["DEFAULT_BYTES", "ReadOptions", "WriteOptions", "includes_headers", "read_options", "write_options"]

EARLIEST, LATEST, WATERMARK = "earliest", "latest", "watermark"
TAIL, DRAIN = "tail", "drain"
STAGED, DIRECT = "staged", "direct"
DEFAULT_ROWS = 50_000  # in one batch of a drain
DEFAULT_BYTES = 1 << 30  # in one batch of a drain, and of the archiver
DEFAULT_BATCH_BYTES = 4 << 20
DEFAULT_WATERMARK_TIMEOUT_S = 10.0
DEFAULT_CONNECT_RETRY_S = 300.0
DEFAULT_CALL_ROWS = 1000


@dataclass(frozen=True)
class ReadOptions:
    """How a queue is read.

    Attributes:
        queue: the queue; of a stream that reads several, what was asked for.
        queues: the queues of a stream that reads several.
        pattern: a regular expression; a stream reads the queues whose whole names it matches.
        starting: a row version, "earliest" or "latest".
        ending: a row version, "latest" or "watermark".
        max_rows: rows in one batch of a stream; None for no limit.
        max_bytes: bytes of headers and bodies in one batch of a stream; None for no limit. A larger message is a batch of its own.
        part_rows: messages in one partition; None for no limit.
        watermark_timeout_s: seconds that a read waits for transactions that were writing when it began.
        batch_bytes: target size of one Arrow batch.
        connect_retry_s: seconds that a stream waits for a server that restarts or fails over.
        confirmed: JSON: the offset at which a stream without a checkpoint continues, by the identity of the queue. `starting` is for others.
    """

    queue: str
    environment: str | None = None
    mode: str = TAIL
    starting: str | int = EARLIEST
    ending: str | int = LATEST
    max_rows: int | None = None
    max_bytes: int | None = None
    part_rows: int | None = None
    partitions: int = 2
    fail_on_data_loss: bool = True
    watermark_timeout_s: float = DEFAULT_WATERMARK_TIMEOUT_S
    batch_bytes: int = DEFAULT_BATCH_BYTES
    allow_consumers: bool = False
    take_over: bool = False
    connect_retry_s: float = DEFAULT_CONNECT_RETRY_S
    confirmed: str = "{}"
    queues: tuple[str, ...] = ()
    pattern: str | None = None

    @property
    def several(self) -> bool:
        """Whether the messages have the column `queue`."""
        return bool(self.queues) or self.pattern is not None

    def parts(self, messages: int) -> int:
        """Return the number of partitions of a batch with so many messages at most."""
        return max(self.partitions, 0 if self.part_rows is None else ceil(messages / self.part_rows))


@dataclass(frozen=True)
class WriteOptions:
    """How a DataFrame is written to a queue.

    Attributes:
        queue: the destination; None if the column queue of the rows names it.
        job_key: identifies the job. Its messages are written once, however often it runs.
        mode: "staged" sends nothing before all tasks have succeeded; "direct" sends partition by partition.
        messages_per_call: messages in one call of the database.
    """

    queue: str | None
    environment: str | None = None
    job_key: str | None = None
    mode: str = STAGED
    messages_per_call: int = DEFAULT_CALL_ROWS


def read_options(options: Mapping[str, str], *, stream: bool = False) -> ReadOptions:
    """Parse the options of a batch read, or of a stream. Raises SettingsError."""
    check_no_secrets(options)
    check_names(options, STREAM if stream else BATCH, "a stream" if stream else "a batch read")
    if options.get("mode", "").lower() == "log":
        raise SettingsError("mode=log is gone: messages that are received at once are archived from the audit queue, with mode=tail or mode=drain.")
    mode = _choice(options, "mode", (TAIL, DRAIN), TAIL)
    max_rows, max_bytes = _whole(options, "maxOffsetsPerTrigger", at_least=1), _whole(options, "maxBytesPerTrigger", at_least=1)
    queue, queues, pattern = _queues(options)
    starting = _offset(options, "startingOffsets", EARLIEST, (EARLIEST, LATEST))
    if (queues or pattern) and isinstance(starting, int):
        raise SettingsError("The option startingOffsets must be earliest or latest for several queues: each queue has its own row versions.")
    return ReadOptions(
        queue=queue,
        queues=queues,
        pattern=pattern,
        environment=_environment(options),
        mode=mode,
        starting=starting,
        ending=_offset(options, "endingOffsets", LATEST, (LATEST, WATERMARK)),
        max_rows=DEFAULT_ROWS if max_rows is None and mode != TAIL else max_rows,
        max_bytes=DEFAULT_BYTES if max_bytes is None and mode != TAIL else max_bytes,
        part_rows=_whole(options, "maxRecordsPerPartition", at_least=1),
        partitions=_whole(options, "minPartitions", at_least=1) or os.cpu_count() or 1,
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        watermark_timeout_s=_seconds(options, "watermarkTimeoutSeconds", DEFAULT_WATERMARK_TIMEOUT_S),
        batch_bytes=_whole(options, "maxBytesPerBatch", at_least=1024) or DEFAULT_BATCH_BYTES,
        allow_consumers=_flag(options, "allowConsumers", False),
        take_over=_flag(options, "takeOver", False),
        connect_retry_s=_seconds(options, "connectRetrySeconds", DEFAULT_CONNECT_RETRY_S),
        confirmed=_confirmed(options),
    )


def write_options(options: Mapping[str, str], *, stream: bool = False) -> WriteOptions:
    """Parse the options of a batch write, or of a stream's. Raises SettingsError."""
    check_no_secrets(options)
    check_names(options, STREAM_WRITE if stream else WRITE, "a stream's write" if stream else "a batch write")
    return WriteOptions(
        queue=_queue(options) if options.get("queue") or options.get("subscribe") else None,
        environment=_environment(options),
        job_key=options.get("jobKey"),
        mode=_choice(options, "mode", (STAGED, DIRECT), STAGED),
        messages_per_call=_whole(options, "messagesPerCall", at_least=1) or DEFAULT_CALL_ROWS,
    )


def includes_headers(options: Mapping[str, str]) -> bool:
    """Tell whether the table has the column headers. Unlike Kafka's source, it has it unless includeHeaders is false."""
    return _flag(options, "includeHeaders", True)


def _queue(options: Mapping[str, str]) -> str:
    queue, subscribed = options.get("queue"), options.get("subscribe")
    if queue and subscribed and queue != subscribed:
        raise SettingsError(f"The options queue ({queue}) and subscribe ({subscribed}) name different queues. Use one of them.")
    queue = queue or subscribed
    if not queue:
        raise SettingsError('The option queue is missing. Add .option("queue", "audit"). `rowpost queue list` shows the queues.')
    return queue


def _queues(options: Mapping[str, str]) -> tuple[str, tuple[str, ...], str | None]:
    """Return the queue, or what was asked for with a list of queues or a pattern. In the option queue, a comma is a part of the name."""
    pattern, listed = options.get("subscribePattern"), options.get("subscribe")
    if pattern is not None:
        if options.get("queue") or listed:
            raise SettingsError("The option subscribePattern cannot be combined with queue or subscribe. Give one of them.")
        try:
            re.compile(pattern)
        except re.error as error:
            raise SettingsError(f"The option subscribePattern must be a regular expression (got {pattern!r}): {error}.") from error
        return pattern, (), pattern
    names = tuple(dict.fromkeys(name.strip() for name in (listed or "").split(","))) if listed and not options.get("queue") else ()
    if len(names) <= 1:
        return _queue(options), (), None
    if not all(names):
        raise SettingsError(f"The option subscribe has an empty name between two commas (got {listed!r}).")
    return str(listed), names, None


def _environment(options: Mapping[str, str]) -> str | None:
    """Make the path of an environment file absolute: a worker may run in another folder."""
    named = options.get("environment")
    return str(Path(named).resolve()) if named and Path(named).is_file() else named


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, ...], default: str) -> str:
    value = options.get(name, default).lower()
    if value not in choices:
        raise SettingsError(f"The option {name} must be {' or '.join(choices)} (got {value!r}).")
    return value


def _offset(options: Mapping[str, str], name: str, default: str, words: tuple[str, ...]) -> str | int:
    value = options.get(name, default).strip().lower()
    if value in words:
        return value
    if value.isdecimal():
        return int(value)
    raise SettingsError(f"The option {name} must be {', '.join(words)} or a row version (got {value!r}).")


def _confirmed(options: Mapping[str, str]) -> str:
    text = options.get("confirmedOffsets", "{}")
    try:
        valid = all(isinstance(offset, dict) and offset.get("queue") == identity for identity, offset in json.loads(text).items())
    except (ValueError, AttributeError):
        valid = False
    if not valid:
        raise SettingsError(f"The option confirmedOffsets must be a JSON object with the offset of each queue by its identity (got {text!r}).")
    return text


def _whole(options: Mapping[str, str], name: str, *, at_least: int) -> int | None:
    value: Any = options.get(name)
    if value is None:
        return None
    if not str(value).strip().isdecimal() or int(value) < at_least:
        raise SettingsError(f"The option {name} must be a whole number of at least {at_least} (got {value!r}).")
    return int(value)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    value = options.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise SettingsError(f"The option {name} must be true or false (got {value!r}).")
    return value == "true"


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    value = options.get(name, default)
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise SettingsError(f"The option {name} must be a number of seconds of at least 0, such as 2.5 (got {value!r}).")
    return seconds
