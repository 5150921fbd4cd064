"""Parse and check the options of the source and the sink. Option names follow Spark's Kafka source where it has them.

The list of options is closed. An unknown option would be ignored silently: `startingOffset` instead of
`startingOffsets` would read the whole queue. Spark writes options into plans and event logs, so that a URL or a
password among them is refused before Spark has made a plan.

The option `environment` names a settings file. That file names environment variables, which the driver and every
executor must have.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rowpost.archive.source.options import (
    DEFAULT_BYTES,
    DEFAULT_ROWS,
    DRAIN,
    EARLIEST,
    LATEST,
    TAIL,
    WATERMARK,
    ReadOptions,
)
from rowpost.errors import SettingsError
from rowpost.settings.environment import load_settings
from rowpost.settings.yaml_node import did_you_mean

__all__ = ["APPLICATION", "WriteOptions", "check_no_secrets", "flag", "in_environment", "read_options", "write_options"]

#: how the server lists the connections of Spark's processes
APPLICATION = "rowpost spark"
STAGED, DIRECT = "staged", "direct"


@dataclass(frozen=True)
class WriteOptions:
    """How a DataFrame is written to a queue, or to those that the rows name.

    The messages of a `job_key` are written once, however often it runs. `mode` is "staged", which sends nothing before
    all tasks have succeeded, or "direct", which sends partition by partition.
    """

    queue: str | None
    environment: str | None = None
    job_key: str | None = None
    mode: str = STAGED
    messages_per_call: int = 1000


Options = TypeVar("Options", ReadOptions, WriteOptions)
Parse = Callable[[str, str], Any]


def _choice(choices: Sequence[str], name: str, text: str) -> str:
    if text.lower() not in choices:
        raise SettingsError(f"The option {name} must be {' or '.join(choices)} (got {text.lower()!r}).")
    return text.lower()


def _offset(words: Sequence[str], name: str, text: str) -> str | int:
    value = text.strip().lower()
    if value not in words and not value.isdecimal():
        raise SettingsError(f"The option {name} must be {', '.join(words)} or a row version (got {value!r}).")
    return int(value) if value.isdecimal() else value


def _whole(at_least: int, name: str, text: str) -> int:
    if not str(text).strip().isdecimal() or int(text) < at_least:
        raise SettingsError(f"The option {name} must be a whole number of at least {at_least} (got {text!r}).")
    return int(text)


def flag(name: str, text: str) -> bool:
    """Parse true or false. Raises SettingsError, which names the option."""
    if text.lower() not in ("true", "false"):
        raise SettingsError(f"The option {name} must be true or false (got {text.lower()!r}).")
    return text.lower() == "true"


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise SettingsError(f"The option {name} must be a number of seconds of at least 0, such as 2.5 (got {text!r}).")
    return seconds


def _confirmed(name: str, text: str) -> str:
    try:
        valid = all(offset["queue"] == identity for identity, offset in json.loads(text).items())
    except (ValueError, AttributeError, TypeError, KeyError):
        valid = False
    if not valid:
        raise SettingsError(
            f"The option {name} must be a JSON object with the offset of each queue by its identity (got {text!r})."
        )
    return text


def _path(name: str, text: str) -> str:
    """Make the path of an environment file absolute: a worker may run in another folder."""
    return str(Path(text).resolve()) if text and Path(text).is_file() else text


#: the options of each kind of access that become one attribute, and how their texts are parsed
_READ: dict[str, tuple[str, Parse]] = {
    "environment": ("environment", _path),
    "startingOffsets": ("starting", partial(_offset, (EARLIEST, LATEST))),
    "endingOffsets": ("ending", partial(_offset, (LATEST, WATERMARK))),
    "minPartitions": ("partitions", partial(_whole, 1)),
    "maxRecordsPerPartition": ("part_rows", partial(_whole, 1)),
    "maxBytesPerBatch": ("batch_bytes", partial(_whole, 1024)),
    "watermarkTimeoutSeconds": ("watermark_timeout_s", _seconds),
}
_STREAM: dict[str, tuple[str, Parse]] = _READ | {
    "mode": ("mode", partial(_choice, (TAIL, DRAIN))),
    "maxOffsetsPerTrigger": ("max_rows", partial(_whole, 1)),
    "maxBytesPerTrigger": ("max_bytes", partial(_whole, 1)),
    "failOnDataLoss": ("fail_on_data_loss", flag),
    "allowConsumers": ("allow_consumers", flag),
    "takeOver": ("take_over", flag),
    "connectRetrySeconds": ("connect_retry_s", _seconds),
    "confirmedOffsets": ("confirmed", _confirmed),
}
_STREAM_WRITE: dict[str, tuple[str, Parse]] = {
    "environment": ("environment", _path),
    "messagesPerCall": ("messages_per_call", partial(_whole, 1)),
}
_WRITE: dict[str, tuple[str, Parse]] = _STREAM_WRITE | {
    "jobKey": ("job_key", lambda name, text: text),
    "mode": ("mode", partial(_choice, (STAGED, DIRECT))),
}
#: options of `spark.read`, `spark.readStream`, `df.write` and `df.writeStream`
BATCH = ("queue", "subscribe", *_READ, "includeHeaders", "columns")
STREAM = ("queue", "subscribe", "subscribePattern", *_STREAM, "includeHeaders", "columns")
WRITE = ("queue", "subscribe", *_WRITE)
STREAM_WRITE = ("queue", "subscribe", *_STREAM_WRITE)
#: options of Spark itself, which it passes on
_SPARKS = ("checkpointLocation", "queryName")
_DEFAULTS: dict[str, Any] = {"application": APPLICATION}

_ENVIRONMENT = "The environment's file names the database: use the option environment."
_NO_TIME = "A queue does not store when a message was sent. Use startingOffsets and endingOffsets with row versions."
#: what other sources have, and why this one has not
_REASONS = {
    **dict.fromkeys(
        ("startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"), _NO_TIME
    ),
    "startingOffsetsByTimestampStrategy": _NO_TIME,
    **dict.fromkeys(("minOffsetsPerTrigger", "maxTriggerDelay"), "Set the interval of the trigger instead."),
    "availableNow": "Remove it, and use .trigger(availableNow=True).",
    "assign": "Use the option queue, with the name of one queue.",
    "topic": "Use the option queue.",
    "groupIdPrefix": "A queue has no consumer groups: the checkpoint stores what was read.",
    "jobParts": "It is not needed any more: remove it.",
    "slot": "mode=log is gone, and with it its replication slot: remove the option.",
    "path": "Use the option queue.",
}
_SECRET_NAME = re.compile(
    r"url|password|passwd|pwd|secret|token|credential|user|uid|login|connection|host|server|kafka\.", re.IGNORECASE
)
_SECRET_VALUE = re.compile(
    r"://[^/]*@|^(postgres(ql)?|mssql|sqlserver|jdbc)\b.*:|\b(pwd|password|uid|user)\s*=", re.IGNORECASE
)


def read_options(options: Mapping[str, str], *, stream: bool = False) -> ReadOptions:
    """Parse the options of a batch read, or of a stream. Raises SettingsError."""
    check_no_secrets(options)
    _check_names(options, STREAM if stream else BATCH, "a stream" if stream else "a batch read")
    if options.get("mode", "").lower() == "log":
        raise SettingsError(
            "mode=log is gone: messages that are received at once are archived from the audit queue, with mode=tail or "
            "mode=drain."
        )
    queue, queues, pattern = _queues(options)
    given = _parsed(options, _STREAM if stream else _READ)
    if (queues or pattern) and isinstance(given.get("starting"), int):
        raise SettingsError(
            "The option startingOffsets must be earliest or latest for several queues: each queue has its own row "
            "versions."
        )
    if given.get("mode") == DRAIN:
        given = {"max_rows": DEFAULT_ROWS, "max_bytes": DEFAULT_BYTES} | given
    defaults = _DEFAULTS | {"partitions": os.cpu_count() or 1}
    return ReadOptions(queue=queue, queues=queues, pattern=pattern, **(defaults | given))


def write_options(options: Mapping[str, str], *, stream: bool = False) -> WriteOptions:
    """Parse the options of a batch write, or of a stream's. Raises SettingsError."""
    check_no_secrets(options)
    _check_names(options, STREAM_WRITE if stream else WRITE, "a stream's write" if stream else "a batch write")
    queue = _queue(options) if options.get("queue") or options.get("subscribe") else None
    return WriteOptions(queue, **_parsed(options, _STREAM_WRITE if stream else _WRITE))


def _parsed(options: Mapping[str, str], known: Mapping[str, tuple[str, Parse]]) -> dict[str, Any]:
    return {
        attribute: parse(name, options[name])
        for name, (attribute, parse) in known.items()
        if options.get(name) is not None
    }


def in_environment(options: Options) -> Options:
    """Return options whose queues have the schema that the environment means.

    Raises SettingsError, InvalidQueueName.
    """
    resolve = load_settings(options.environment, offline=True).naming.resolve
    if isinstance(options, WriteOptions):
        return replace(options, queue=options.queue and resolve(options.queue))
    if options.pattern is not None:
        return options
    queues = tuple(map(resolve, options.queues))
    return replace(options, queue=options.queue if queues else resolve(options.queue), queues=queues)


def _queue(options: Mapping[str, str]) -> str:
    queue, subscribed = options.get("queue"), options.get("subscribe")
    if queue and subscribed and queue != subscribed:
        raise SettingsError(
            f"The options queue ({queue}) and subscribe ({subscribed}) name different queues. Use one of them."
        )
    queue = queue or subscribed
    if not queue:
        raise SettingsError(
            'The option queue is missing. Add .option("queue", "audit"). `rowpost queue list` shows the queues.'
        )
    return queue


def _queues(options: Mapping[str, str]) -> tuple[str, tuple[str, ...], str | None]:
    """Return the queue, or what a list or a pattern asks for. In the option queue, a comma is a part of the name."""
    pattern, listed, queue = (options.get(name) for name in ("subscribePattern", "subscribe", "queue"))
    if pattern is not None:
        if queue or listed:
            raise SettingsError(
                "The option subscribePattern cannot be combined with queue or subscribe. Give one of them."
            )
        try:
            re.compile(pattern)
        except re.error as error:
            raise SettingsError(
                f"The option subscribePattern must be a regular expression (got {pattern!r}): {error}."
            ) from error
        return pattern, (), pattern
    names = tuple(dict.fromkeys(name.strip() for name in (listed or "").split(",")))
    if queue or len(names) == 1:
        return _queue(options), (), None
    if not all(names):
        raise SettingsError(f"The option subscribe has an empty name between two commas (got {listed!r}).")
    return str(listed), names, None


def check_no_secrets(options: Mapping[str, str]) -> None:
    """Raise SettingsError for a URL, a login or a password among the options. The message never contains the value."""
    known = {name.lower() for name in (*STREAM, *WRITE, *_SPARKS)}
    for name, value in options.items():
        if (name.lower() not in known and _SECRET_NAME.search(name)) or _SECRET_VALUE.search(str(value)):
            raise SettingsError(
                f"The option {name} is not allowed: it looks like a URL or a password. Spark writes options into plans "
                f"and event logs. {_ENVIRONMENT} Pass secrets as environment variables, which that file names."
            )


def _check_names(options: Mapping[str, str], known: Iterable[str], purpose: str) -> None:
    """Raise SettingsError for an unknown option, with the nearest known name. Spark may pass names in lower case."""
    names = {name.lower(): name for name in (*known, *_SPARKS)}
    reasons = {name.lower(): reason for name, reason in _REASONS.items()}
    elsewhere = {name.lower() for name in (*STREAM, *WRITE)}
    for name in options:
        key = name.lower()
        if key in names:
            continue
        if key in reasons:
            raise SettingsError(f"The option {name} is not supported. {reasons[key]}")
        if key in elsewhere:
            raise SettingsError(
                f"The option {name} is not for {purpose}. Remove it. The options of {purpose} are {', '.join(known)}."
            )
        near = did_you_mean(key, names).removeprefix(": did you mean ").removesuffix("?")
        hint = f"did you mean {names[near]}?" if near else f"the options of {purpose} are {', '.join(known)}."
        raise SettingsError(f"The option {name} is unknown: {hint}")
