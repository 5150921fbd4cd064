"""Decode the messages of PostgreSQL's output plugin pgoutput (protocol 1). Performs no I/O.

`decode` converts one message: Relation, Begin, Commit or Insert; None for all others. `Decoder` keeps the relations of a
stream and converts the row of an Insert to values. A column comes as text or in the server's binary form; both are read. A
position in the server's log (LSN) is a number here, and `16/B374D848` in texts: `parse_lsn`, `format_lsn`.

The messages are described in the PostgreSQL manual, "Logical Replication Message Formats".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from rowpost.database.moments import DistantTime, moment

__all__ = ["Begin", "Column", "Commit", "Decoder", "Insert", "Relation", "decode", "format_lsn", "parse_lsn"]

_BEGIN, _COMMIT, _RELATION, _INSERT, _NEW_ROW = b"BCRIN"
_NULL, _TEXT, _BINARY = b"ntb"
_LSN_AND_TIME = struct.Struct("!Qq").unpack_from
_TWO_LSNS_AND_TIME = struct.Struct("!QQq").unpack_from
_OID, _COUNT = struct.Struct("!I").unpack_from, struct.Struct("!H").unpack_from
_LENGTH = struct.Struct("!i").unpack_from
_BIGINT, _INTEGER = struct.Struct("!q").unpack, struct.Struct("!i").unpack
_COLUMN_TAIL = 8  # bytes of a column's type and modifier


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation, with the OID of its type."""

    name: str
    type: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is at this point of the log."""

    oid: int
    schema: str
    name: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """The start of a transaction that has committed. `commit` is the LSN of its commit record, `at` is when it committed (UTC)."""

    commit: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction. `commit` is the LSN of its commit record, `end` the LSN after the record."""

    commit: int
    end: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row. `data` is the whole message, and the row begins at `offset`."""

    relation: int
    data: bytes
    offset: int


def parse_lsn(text: str) -> int:
    """Convert the text of an LSN. Raises ValueError.

    >>> parse_lsn("16/B374D848")
    97500059720
    """
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def format_lsn(lsn: int) -> str:
    """Convert an LSN to text.

    >>> format_lsn(97500059720)
    '16/B374D848'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def decode(data: bytes) -> Relation | Begin | Commit | Insert | None:
    """Convert one message. Returns None for a message that is of no use here. Raises ValueError if the message is incomplete."""
    try:
        kind = data[0]
        if kind == _INSERT:
            if data[5] != _NEW_ROW:
                raise ValueError(f"an Insert without a new row ({data[:6]!r})")
            return Insert(_OID(data, 1)[0], data, 6)
        if kind == _BEGIN:
            commit, at = _LSN_AND_TIME(data, 1)
            return Begin(commit, moment(at))
        if kind == _COMMIT:
            commit, end, at = _TWO_LSNS_AND_TIME(data, 2)  # after the flags
            return Commit(commit, end, moment(at))
        return _relation(data) if kind == _RELATION else None
    except (IndexError, struct.error) as error:
        raise ValueError(f"a message of pgoutput ends early ({data[:20]!r}, {len(data)} bytes)") from error


def _relation(data: bytes) -> Relation:
    oid = _OID(data, 1)[0]
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    (count,) = _COUNT(data, at + 1)  # after the replica identity
    at += 3
    columns = []
    for _ in range(count):
        column, at = _text(data, at + 1)  # after the flags
        columns.append(Column(column, _OID(data, at)[0]))
        at += _COLUMN_TAIL
    return Relation(oid, schema or "pg_catalog", name, tuple(columns))


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.find(b"\0", at)
    if end < 0:
        raise IndexError(at)
    return data[at:end].decode(), end + 1


def _text_time(data: bytes) -> datetime:
    text = data.decode()
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return DistantTime.of_text(text)


def _text_binary(data: bytes) -> bytes:
    if data[:2] != b"\\x":
        raise ValueError("a binary value is not hexadecimal: bytea_output of the session must be hex")
    return bytes.fromhex(data[2:].decode())


_FROM_BINARY: dict[int, Callable[[bytes], Any]] = {
    17: bytes, 20: lambda data: _BIGINT(data)[0], 23: lambda data: _INTEGER(data)[0], 25: bytes.decode, 1043: bytes.decode,
    1114: lambda data: moment(_BIGINT(data)[0]), 2950: lambda data: str(UUID(bytes=data)),
}  # fmt: skip
_FROM_TEXT: dict[int, Callable[[bytes], Any]] = {
    17: _text_binary, 20: int, 23: int, 25: bytes.decode, 1043: bytes.decode, 1114: _text_time, 2950: bytes.decode,
}  # fmt: skip


class Decoder:
    """The relations of one stream, and the values of their rows.

    Args:
        columns: the columns whose values are wanted, in the order of the result.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = tuple(columns)
        self._plans: dict[int, list[tuple[int, Callable[[bytes], Any], Callable[[bytes], Any]] | None]] = {}

    def add(self, relation: Relation) -> None:
        """Note a relation, or its new form. Raises ValueError if a column is missing or has a type that no queue has."""
        wanted = {name: place for place, name in enumerate(self._columns)}
        missing = wanted.keys() - {column.name for column in relation.columns}
        if missing:
            raise ValueError(f"the table {relation.schema}.{relation.name} has no column {sorted(missing)[0]}")
        plan: list[tuple[int, Callable[[bytes], Any], Callable[[bytes], Any]] | None] = []
        for column in relation.columns:
            if column.name not in wanted:
                plan.append(None)
            elif column.type not in _FROM_BINARY:
                raise ValueError(f"the column {column.name} of {relation.schema}.{relation.name} has the type {column.type}, which no queue has")
            else:
                plan.append((wanted[column.name], _FROM_BINARY[column.type], _FROM_TEXT[column.type]))
        self._plans[relation.oid] = plan

    def values(self, insert: Insert) -> list[Any]:
        """Return the wanted values of a new row. Raises ValueError if its relation is unknown or the message is incomplete."""
        plan, data, at = self._plans.get(insert.relation), insert.data, insert.offset + 2
        found: list[Any] = [None] * len(self._columns)
        try:
            if plan is None or _COUNT(data, insert.offset)[0] != len(plan):
                raise ValueError(f"a row of the relation {insert.relation} came before its description")
            for step in plan:
                kind = data[at]
                if kind == _NULL:
                    at += 1
                    continue
                if kind not in (_TEXT, _BINARY):
                    raise ValueError(f"a column of a new row has the kind {chr(kind)}")
                begin = at + 5
                at = begin + _LENGTH(data, at + 1)[0]
                if at > len(data):
                    raise IndexError(at)
                if step is not None:
                    place, from_binary, from_text = step
                    found[place] = (from_binary if kind == _BINARY else from_text)(data[begin:at])
        except (IndexError, struct.error) as error:
            raise ValueError(f"a row of pgoutput ends early ({len(data)} bytes)") from error
        return found
