"""Parse and check the options of the source and the sink. Option names follow Spark's Kafka source where it has them.

The list of options is closed (option_names.py). The option `environment` names a settings file. That file names environment
variables, which the driver and every executor must have.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from rowpost.archive.source.options import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_BYTES,
    DEFAULT_CONNECT_RETRY_S,
    DEFAULT_ROWS,
    DEFAULT_WATERMARK_TIMEOUT_S,
    DRAIN,
    EARLIEST,
    LATEST,
    TAIL,
    WATERMARK,
    ReadOptions,
)
from rowpost.errors import SettingsError
from rowpost.settings.environment import load_settings
from rowpost.spark.source.option_names import BATCH, STREAM, STREAM_WRITE, WRITE, check_names, check_no_secrets

__all__ = ["APPLICATION", "WriteOptions", "in_environment", "includes_headers", "read_options", "write_options"]

#: how the server lists the connections of Spark's processes
APPLICATION = "rowpost spark"
STAGED, DIRECT = "staged", "direct"
DEFAULT_CALL_ROWS = 1000


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


Options = TypeVar("Options", ReadOptions, WriteOptions)


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
        application=APPLICATION,
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


def in_environment(options: Options) -> Options:
    """Return options whose queues have the schema that the environment means. Raises SettingsError, InvalidQueueName."""
    resolve = load_settings(options.environment, offline=True).naming.resolve
    if isinstance(options, WriteOptions):
        return replace(options, queue=options.queue and resolve(options.queue))
    if options.pattern is not None:
        return options
    queues = tuple(map(resolve, options.queues))
    return replace(options, queue=options.queue if queues else resolve(options.queue), queues=queues)


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
