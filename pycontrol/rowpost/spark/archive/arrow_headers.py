"""Parse the headers of an Arrow batch into the columns of an archive, in the task that writes its files.

`archived` gives the rows that `jobs.archive.archive` gives for a DataFrame; a test compares the two. Spark's own functions take most
of the archiver's time if they parse every message: a row has to be converted twice, and each header is searched for in a map.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from rowpost.spark.archive.headers import DAY_TIMES, EARLIEST_DAY, FAILED_TABLE, FIRST_TYPE, LATEST_YEAR, NAMES, TIMES
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, PROCESSING_ENDPOINT

__all__ = ["archived"]

_WIRE = {**NAMES, **TIMES, "message_id": MESSAGE_ID, "enclosed_types": ENCLOSED_MESSAGE_TYPES, "processing_endpoint": PROCESSING_ENDPOINT}
_Headers = msgspec.defstruct("_Headers", [(name, str | None, None) for name in _WIRE], rename=_WIRE, gc=False)
_NONE = _Headers()
_decode = msgspec.json.Decoder(_Headers).decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}:[0-9]{6} Z$"
_WIRE_TIME = "%Y-%m-%d %H:%M:%S:%f Z"
_MICROSECONDS = pa.timestamp("us", "UTC")


def archived(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add the columns of schemas.PARSED and `day` to messages (schemas.MESSAGE) with `archived_at` and `queue`.

    A header that cannot be read is null; it never raises an error.
    """
    headers = [_read(text) for text in batch.column("headers").to_pylist()]
    values = zip(*(msgspec.structs.astuple(each or _NONE) for each in headers), strict=True) if headers else [()] * len(_WIRE)
    found = {name: _filled(pa.array(each, pa.string())) for name, each in zip(_WIRE, values, strict=True)}
    found |= {name: _times(found[name]) for name in TIMES}
    found["headers_valid"] = pa.array([each is not None for each in headers], pa.bool_())
    found["message_id"] = pc.coalesce(found["message_id"], batch.column("id"))
    found["message_type"] = _each_distinct(found.pop("enclosed_types"), _first_type)
    found["endpoint"] = pc.coalesce(found.pop("processing_endpoint"), _each_distinct(found["failed_queue"], _failed_table))
    found["body_bytes"] = pc.fill_null(pc.binary_length(batch.column("body")), 0).cast(pa.int64())
    found["day"] = _day(batch.column("archived_at").cast(_MICROSECONDS), *(found[name] for name in DAY_TIMES))
    return pa.RecordBatch.from_arrays([*batch.columns, *found.values()], names=[*batch.schema.names, *found])


def _read(text: str) -> Any:
    """Return the headers; None if they are not a JSON object. No headers at all are valid."""
    if not text:
        return _NONE
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return _read_unusual(text)


def _read_unusual(text: str) -> Any:
    """Read headers whose values are not all texts: such a value becomes the JSON text that it is."""
    try:
        values = _decode_raw(text)
        return _Headers(**{name: _as_text(values.get(wire)) for name, wire in _WIRE.items()})
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _as_text(value: msgspec.Raw | None) -> str | None:
    if value is None or bytes(value) == b"null":
        return None
    text = bytes(value)
    return msgspec.json.decode(text, type=str) if text.startswith(b'"') else msgspec.json.format(text, indent=-1).decode()


def _filled(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(values, ""), None, values)


def _times(texts: pa.Array) -> pa.Array:
    """Parse times in the wire format. Others are null, and so are times that Python cannot represent in every time zone."""
    texts = pc.if_else(pc.match_substring_regex(texts, _TIME), texts, None)
    try:
        times = pc.binary_join_element_wise(pc.utf8_slice_codeunits(texts, 0, 19), pc.utf8_slice_codeunits(texts, 20, 26), ".")
        times = times.cast(pa.timestamp("us")).cast(_MICROSECONDS)
    except pa.ArrowInvalid:  # one of them has no such day or hour
        times = pa.array([_time(text) for text in texts.to_pylist()], _MICROSECONDS)
    return pc.if_else(pc.and_(pc.greater_equal(times, datetime(1970, 1, 1, tzinfo=UTC)), pc.less_equal(times, LATEST_YEAR)), times, None)


def _time(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.strptime(text, _WIRE_TIME).replace(tzinfo=UTC)
    except ValueError:
        return None


def _day(archived_at: pa.Array, *times: pa.Array) -> pa.Array:
    """Return the day of the first time that can be right: a wrong one must not create a folder for a day in the year 9999."""
    latest = pc.add(archived_at, pa.scalar(timedelta(days=1), pa.duration("us")))
    plausible = [pc.if_else(pc.and_(pc.less_equal(time, latest), pc.greater_equal(time, EARLIEST_DAY)), time, None) for time in times]
    return pc.coalesce(*plausible, archived_at).cast(pa.date32())


def _each_distinct(values: pa.Array, convert: Callable[[str], str | None]) -> pa.Array:
    """Convert texts of which most are equal."""
    encoded = values.dictionary_encode()
    return pa.array([convert(text) for text in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)


@lru_cache(maxsize=4096)
def _first_type(header: str) -> str | None:
    return _group(FIRST_TYPE, header)


@lru_cache(maxsize=4096)
def _failed_table(address: str) -> str | None:
    return _group(FAILED_TABLE, address)


def _group(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text)
    return (found[1].strip(" ") if found else "") or None
