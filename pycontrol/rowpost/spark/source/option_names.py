"""The options that the data source knows, and the refusal of all others.

An unknown option would be ignored silently: `startingOffset` instead of `startingOffsets` would read the whole queue. Spark writes
options into plans and event logs, so that a URL or a password among them is refused before Spark has made a plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rowpost.errors import SettingsError
from rowpost.settings.yaml_node import did_you_mean

__all__ = ["BATCH", "STREAM", "STREAM_WRITE", "WRITE", "check_names", "check_no_secrets"]

_ANY = ("queue", "subscribe", "environment")
_READ = (
    *_ANY,
    "startingOffsets",
    "endingOffsets",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBytesPerBatch",
    "watermarkTimeoutSeconds",
    "includeHeaders",
    "columns",
)
#: options of `spark.read`
BATCH = _READ
#: options of `spark.readStream`
STREAM = (
    *_READ, "subscribePattern", "mode", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "failOnDataLoss", "allowConsumers", "takeOver",
    "connectRetrySeconds", "confirmedOffsets",
)  # fmt: skip
#: options of `df.write`
WRITE = (*_ANY, "jobKey", "mode", "messagesPerCall")
#: options of `df.writeStream`
STREAM_WRITE = (*_ANY, "messagesPerCall")
#: options of Spark itself, which it passes on
_SPARKS = ("checkpointLocation", "queryName")

_ENVIRONMENT = "The environment's file names the database: use the option environment."
_NO_TIME = "A queue does not store when a message was sent. Use startingOffsets and endingOffsets with row versions."
#: what other sources have, and why this one has not
_REASONS = {
    "startingTimestamp": _NO_TIME,
    "endingTimestamp": _NO_TIME,
    "startingOffsetsByTimestamp": _NO_TIME,
    "endingOffsetsByTimestamp": _NO_TIME,
    "startingOffsetsByTimestampStrategy": _NO_TIME,
    "minOffsetsPerTrigger": "Set the interval of the trigger instead.",
    "maxTriggerDelay": "Set the interval of the trigger instead.",
    "availableNow": "Remove it, and use .trigger(availableNow=True).",
    "assign": "Use the option queue, with the name of one queue.",
    "topic": "Use the option queue.",
    "groupIdPrefix": "A queue has no consumer groups: the checkpoint stores what was read.",
    "jobParts": "It is not needed any more: remove it.",
    "slot": "mode=log is gone, and with it its replication slot: remove the option.",
    "path": "Use the option queue.",
}
_SECRET_NAME = re.compile(r"url|password|passwd|pwd|secret|token|credential|user|uid|login|connection|host|server|kafka\.", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"://[^/]*@|^(postgres(ql)?|mssql|sqlserver|jdbc)\b.*:|\b(pwd|password|uid|user)\s*=", re.IGNORECASE)


def check_no_secrets(options: Mapping[str, str]) -> None:
    """Raise SettingsError for a URL, a login or a password among the options. The message never contains the value."""
    known = {name.lower() for name in (*STREAM, *WRITE, *_SPARKS)}
    for name, value in options.items():
        if (name.lower() not in known and _SECRET_NAME.search(name)) or _SECRET_VALUE.search(str(value)):
            raise SettingsError(
                f"The option {name} is not allowed: it looks like a URL or a password. Spark writes options into plans and event logs. "
                f"{_ENVIRONMENT} Pass secrets as environment variables, which that file names."
            )


def check_names(options: Mapping[str, str], known: Iterable[str], purpose: str) -> None:
    """Raise SettingsError for an option that is not known, with the known name that is nearest to it.

    Args:
        options: the options, whose names Spark may have put into lower case.
        known: the options of this kind of access: BATCH, STREAM, WRITE or STREAM_WRITE.
        purpose: names it in the message, such as "a batch read".
    """
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
            raise SettingsError(f"The option {name} is not for {purpose}. Remove it. The options of {purpose} are {', '.join(known)}.")
        near = did_you_mean(key, names).removeprefix(": did you mean ").removesuffix("?")
        hint = f"did you mean {names[near]}?" if near else f"the options of {purpose} are {', '.join(known)}."
        raise SettingsError(f"The option {name} is unknown: {hint}")
