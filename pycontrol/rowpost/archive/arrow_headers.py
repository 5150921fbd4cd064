"""Parse message headers into the columns of an archive: the only parser of headers, for tasks and for DataFrames.

Spark's own functions are not used: they read a time in the session's time zone, accept texts that are not JSON, and
took most of the archiver's time, because a row has to be converted twice. A header that cannot be read is null, and
`headers_valid` tells whether the headers are JSON. No header raises an error.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from rowpost.wire import headers as wire
from rowpost.wire.message_types import FULL_NAME

__all__ = ["archived", "headers_of", "parsed"]

# Columns that have a header's text, and columns that have its time.
_NAMES = {
    "conversation_id": wire.CONVERSATION_ID,
    "related_to": wire.RELATED_TO,
    "intent": wire.MESSAGE_INTENT,
    "sending_endpoint": wire.ORIGINATING_ENDPOINT,
    "sending_machine": wire.ORIGINATING_MACHINE,
    "machine": wire.PROCESSING_MACHINE,
    "content_type": wire.CONTENT_TYPE,
    "exception_type": wire.EXCEPTION_TYPE,
    "exception_message": wire.EXCEPTION_MESSAGE,
    "failed_queue": wire.FAILED_QUEUE,
}
_TIMES = {
    "time_sent": wire.TIME_SENT,
    "processing_started": wire.PROCESSING_STARTED,
    "processing_ended": wire.PROCESSING_ENDED,
    "deliver_at": wire.DELIVER_AT,
    "time_of_failure": wire.TIME_OF_FAILURE,
}
# Times before 1970 or after this one are not read.
_LATEST_YEAR = datetime(9999, 1, 1, tzinfo=UTC)
# The times that determine the day of a message, the first one that it has.
_DAY_TIMES = ("processing_ended", "time_of_failure", "time_sent")
# Messages of earlier times are stored by the time at which they were archived.
_EARLIEST_DAY = datetime(2000, 1, 1, tzinfo=UTC)
# The name of the first type, with its generic arguments and without its assembly.
_FIRST_TYPE = "^" + FULL_NAME
# The table in the address of a failed queue.
_FAILED_TABLE = r'^(?:"(?:[^"]|"")+"\.)?"?((?:[^"@]|"")+)'
_WIRE = {
    **_NAMES,
    **_TIMES,
    "message_id": wire.MESSAGE_ID,
    "enclosed_types": wire.ENCLOSED_MESSAGE_TYPES,
    "processing_endpoint": wire.PROCESSING_ENDPOINT,
}
_Headers = msgspec.defstruct("_Headers", [(name, str | None, None) for name in _WIRE], rename=_WIRE, gc=False)
_NONE = _Headers()
_decode = msgspec.json.Decoder(_Headers).decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}:[0-9]{6} Z$"
_WIRE_TIME = "%Y-%m-%d %H:%M:%S:%f Z"
_MICROSECONDS = pa.timestamp("us", "UTC")


def archived(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add the columns of schemas.PARSED and `day` to messages (schemas.MESSAGE) with `archived_at` and `queue`."""
    found = parsed(batch.column("id"), batch.column("headers"), batch.column("archived_at"))
    found["body_bytes"] = pc.fill_null(pc.binary_length(batch.column("body")), 0).cast(pa.int64())
    return pa.RecordBatch.from_arrays([*batch.columns, *found.values()], names=[*batch.schema.names, *found])


def parsed(ids: pa.Array, headers: pa.Array, archived_at: pa.Array) -> dict[str, pa.Array]:
    """Return the columns of schemas.PARSED but `body_bytes`, and `day`, which is null if a message has neither a time
    nor `archived_at`.
    """
    read = [_read(text) for text in headers.to_pylist()]
    values = zip(*(msgspec.structs.astuple(each or _NONE) for each in read), strict=True) if read else [()] * len(_WIRE)
    found = {name: _filled(pa.array(each, pa.string())) for name, each in zip(_WIRE, values, strict=True)}
    found |= {name: _times(found[name]) for name in _TIMES}
    found["headers_valid"] = pa.array([each is not None for each in read], pa.bool_())
    found["message_id"] = pc.coalesce(found["message_id"], ids)
    found["message_type"] = _first_groups(_FIRST_TYPE, found.pop("enclosed_types"))
    found["endpoint"] = pc.coalesce(
        found.pop("processing_endpoint"), _first_groups(_FAILED_TABLE, found["failed_queue"])
    )
    found["day"] = _day(archived_at.cast(_MICROSECONDS), *(found[name] for name in _DAY_TIMES))
    return found


def headers_of(text: str | None) -> dict[str, str | None] | None:
    """Return all headers; None if they are not a JSON object. The last of duplicate names is used, as handlers do."""
    try:
        return {name: _as_text(value) for name, value in _decode_raw(text or "").items()}
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _read(text: str | None) -> Any:
    """Return the headers; None if they are not a JSON object. No headers at all are valid."""
    if not text:
        return _NONE
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        values = headers_of(text)  # a value that is not a text becomes the JSON text that it is
    return None if values is None else _Headers(**{name: values.get(header) for name, header in _WIRE.items()})


def _as_text(value: msgspec.Raw) -> str | None:
    text = bytes(value)
    if text == b"null":
        return None
    return (
        msgspec.json.decode(text, type=str) if text.startswith(b'"') else msgspec.json.format(text, indent=-1).decode()
    )


def _filled(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(values, ""), None, values)


def _times(texts: pa.Array) -> pa.Array:
    """Parse times in the wire format.

    Others are null, and so are times that Python cannot represent in every time zone.
    """
    texts = pc.if_else(pc.match_substring_regex(texts, _TIME), texts, None)
    try:
        times = pc.binary_join_element_wise(
            pc.utf8_slice_codeunits(texts, 0, 19), pc.utf8_slice_codeunits(texts, 20, 26), "."
        )
        times = times.cast(pa.timestamp("us")).cast(_MICROSECONDS)
    except pa.ArrowInvalid:  # one of them has no such day or hour
        times = pa.array([_time(text) for text in texts.to_pylist()], _MICROSECONDS)
    return pc.if_else(
        pc.and_(pc.greater_equal(times, datetime(1970, 1, 1, tzinfo=UTC)), pc.less_equal(times, _LATEST_YEAR)),
        times,
        None,
    )


def _time(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.strptime(text, _WIRE_TIME).replace(tzinfo=UTC)
    except ValueError:
        return None


def _day(archived_at: pa.Array, *times: pa.Array) -> pa.Array:
    """Return the day of the first time that can be right: a wrong one must not create a folder for a day in the year
    9999.
    """
    latest = pc.add(archived_at, pa.scalar(timedelta(days=1), pa.duration("us")))
    plausible = [
        pc.if_else(pc.and_(pc.less_equal(time, latest), pc.greater_equal(time, _EARLIEST_DAY)), time, None)
        for time in times
    ]
    return pc.coalesce(*plausible, archived_at).cast(pa.date32())


def _first_groups(pattern: str, texts: pa.Array) -> pa.Array:
    """Return what the first group of a pattern matches in each text. Most of the texts are equal."""
    encoded = texts.dictionary_encode()
    return pa.array([_first_group(pattern, text) for text in encoded.dictionary.to_pylist()], pa.string()).take(
        encoded.indices
    )


@lru_cache(maxsize=8192)
def _first_group(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text)
    return (found[1].strip(" ") if found else "") or None
