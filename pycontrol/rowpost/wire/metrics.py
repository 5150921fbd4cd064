"""Messages to ServiceControl's monitoring instance, as the plugin NServiceBus.Metrics.ServiceControl sends them.

`metadata_report` says where an endpoint's queue is. `values_report` has measurements of one metric, in the binary form
of `encode_values`: each with its time, the type of the handled message as a tag, and a number. `Source` says who
measured.

The bodies hold times as 32 bits after the oldest one, so that a message spans at most 214 s: `portions` divides what
waited longer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from rowpost.wire.headers import (
    CONTENT_TYPE,
    ENCLOSED_MESSAGE_TYPES,
    HOST_DISPLAY_NAME,
    METRIC_INSTANCE_ID,
    METRIC_TYPE,
    ORIGINATING_ENDPOINT,
    ORIGINATING_HOST_ID,
    ORIGINATING_MACHINE,
)
from rowpost.wire.json_serializer import JsonSerializer
from rowpost.wire.message_types import enclosed_type_names, message_type
from rowpost.wire.outgoing import AddressedMessage

__all__ = [
    "CRITICAL_TIME",
    "METRICS",
    "PROCESSING_TIME",
    "RETRIES",
    "VALUES_PER_MESSAGE",
    "Source",
    "Value",
    "encode_values",
    "metadata_report",
    "portions",
    "ticks_at",
    "values_report",
]

CRITICAL_TIME, PROCESSING_TIME, RETRIES = METRICS = ("CriticalTime", "ProcessingTime", "Retries")
#: the most values that the plugin writes into one message
VALUES_PER_MESSAGE = 2048

#: time in .NET ticks, key of the message type, milliseconds; 1 for a retry
Value = tuple[int, int, int]

_EPOCH_TICKS = 621_355_968_000_000_000
_TICKS_PER_SECOND = 10_000_000
_LONGEST_TICKS = 2**31 - 1
_VERSION, _PLUGIN_VERSION = 1, 3
_VALUES_CONTENT_TYPE = "TaggedLongValueWriterOccurrence"
_TIME_TO_BE_RECEIVED = timedelta(days=7)
_HEAD, _COUNT, _TAG, _VALUE = struct.Struct("<qq"), struct.Struct("<i"), struct.Struct("<ii"), struct.Struct("<iiq")
_JSON = JsonSerializer()


@dataclass(frozen=True)
class Source:
    """The endpoint that measured.

    Attributes:
        endpoint: its name.
        machine: the machine's name.
        host_id: identifies the endpoint on this machine, 32 hexadecimal digits.
        instance: names this instance of the endpoint; None: the host id identifies it.
    """

    endpoint: str
    machine: str
    host_id: str
    instance: str | None = None

    @property
    def headers(self) -> dict[str, str | None]:
        """The headers that all its messages have."""
        headers: dict[str, str | None] = {
            ORIGINATING_ENDPOINT: self.endpoint,
            ORIGINATING_MACHINE: self.machine,
            ORIGINATING_HOST_ID: self.host_id,
            HOST_DISPLAY_NAME: self.machine,
        }
        return headers if self.instance is None else {**headers, METRIC_INSTANCE_ID: self.instance}


@message_type("NServiceBus.Metrics.EndpointMetadataReport")
@dataclass(frozen=True)
class _Metadata:
    plugin_version: int
    local_address: str


def metadata_report(source: Source, address: str, *, queue: str) -> AddressedMessage:
    """Return the message that names an endpoint's queue, so that the monitoring instance measures its length.

    Args:
        source: the endpoint.
        address: the canonical address of its queue.
        queue: the address of the monitoring instance's queue.
    """
    metadata = _Metadata(_PLUGIN_VERSION, address)
    headers = {
        **source.headers,
        ENCLOSED_MESSAGE_TYPES: enclosed_type_names(type(metadata)),
        CONTENT_TYPE: _JSON.content_type,
    }
    return AddressedMessage(headers, _JSON.encode(metadata), queue, time_to_be_received=_TIME_TO_BE_RECEIVED)


def values_report(
    source: Source, metric: str, values: Iterable[Value], types: Mapping[int, str], *, queue: str
) -> AddressedMessage:
    """Return the message with measurements of one metric.

    Args:
        source: the endpoint.
        metric: one of METRICS.
        values: one of the `portions` of what was measured.
        types: the message types by their keys.
        queue: the address of the monitoring instance's queue.
    """
    headers = {**source.headers, CONTENT_TYPE: _VALUES_CONTENT_TYPE, METRIC_TYPE: metric}
    return AddressedMessage(headers, encode_values(values, types), queue, time_to_be_received=_TIME_TO_BE_RECEIVED)


def encode_values(values: Iterable[Value], types: Mapping[int, str]) -> bytes:
    """Return the body of a message with measurements.

    There is at least one, and they fit into one message (`portions`).

    All numbers are little-endian: version, oldest time; the number of types, each with its key, length and text; the
    number of values, each with its time after the oldest one, the key of its type, and its number.
    """
    ordered = sorted(values)
    base = ordered[0][0]
    parts = [_HEAD.pack(_VERSION, base)]
    used = dict.fromkeys(tag for _, tag, _ in ordered)
    parts.append(_COUNT.pack(len(used)))
    for tag in used:
        text = types[tag].encode("utf-8", "replace")
        parts += _TAG.pack(tag, len(text)), text
    parts.append(_COUNT.pack(len(ordered)))
    parts += [_VALUE.pack(ticks - base, tag, value) for ticks, tag, value in ordered]
    return b"".join(parts)


def portions(values: Iterable[Value]) -> Iterator[list[Value]]:
    """Divide values into those of one message each, in the order of their times."""
    portion: list[Value] = []
    for value in sorted(values):
        if portion and (len(portion) == VALUES_PER_MESSAGE or value[0] - portion[0][0] > _LONGEST_TICKS):
            yield portion
            portion = []
        portion.append(value)
    if portion:
        yield portion


def ticks_at(seconds: float) -> int:
    """Return a time in seconds since 1970 as .NET ticks: 100 ns since the year 1.

    >>> ticks_at(1.5)
    621355968015000000
    """
    return _EPOCH_TICKS + int(seconds * _TICKS_PER_SECOND)
