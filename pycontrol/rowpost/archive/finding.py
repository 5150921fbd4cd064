"""Find archived messages by an id, without Spark, and without reading all files.

deltalake's query engine skips the row groups whose Bloom filters, ranges or pages exclude an id. It does so for a
condition on one column, so `find` asks for each column by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from rowpost.archive.parts import SEARCHED
from rowpost.archive.table import ArchiveTable

__all__ = ["ArchivedMessage", "find"]

_KEY = ("queue", "row_version", "id")
_COLUMNS = (*_KEY, "day", "time_sent", "headers", "body")


@dataclass(frozen=True)
class ArchivedMessage:
    """An archived message."""

    queue: str
    day: date
    id: str
    row_version: int
    headers: str
    body: bytes


def find(table: ArchiveTable, id: str, limit: int) -> list[ArchivedMessage]:
    """Return the messages that have an id, as that of the row, of the message or of its conversation, in the order of
    sending.

    The id is spelled as it is stored, or all in lower or upper case. Raises SparkFailed if the table is not an archive,
    cannot be read, or needs Delta's jar.
    """
    table.check_columns((*SEARCHED, *_COLUMNS))
    values = ", ".join("'" + value.replace("'", "''") + "'" for value in dict.fromkeys((id, id.lower(), id.upper())))
    columns, order = ", ".join(_COLUMNS), ", ".join(("time_sent", *_KEY))
    each = " UNION ALL ".join(f"SELECT {columns} FROM archive WHERE {name} IN ({values})" for name in SEARCHED)  # noqa: S608 -- quoted
    rows = table.query(f"{each} ORDER BY {order} LIMIT {limit * len(SEARCHED)}").to_pylist()
    once = {tuple(row[name] for name in _KEY): row for row in rows}  # a message may have the id in several columns
    names = ArchivedMessage.__dataclass_fields__
    return [ArchivedMessage(**{name: row[name] for name in names}) for row in list(once.values())[:limit]]
