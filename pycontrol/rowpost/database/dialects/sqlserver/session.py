"""Execute statements on one connection of pyodbc, with as few round trips as the driver allows.

`PyodbcSession` holds the connection and a cursor for each of the last statements with parameters. What costs a round
trip of its own in pyodbc with Microsoft's driver, and is avoided here:

- Closing a cursor that has executed a prepared statement (`sp_unprepare`). The cursors stay open. Each has its own
  statement, so that the driver can use the prepared one again. If it prepares again, the same request frees the old
  one.
- A null as a parameter (`sp_describe_undeclared_parameters`). `SQLServer` writes nulls into the text.
- A value of more than 8,000 bytes (`sp_prepare` before `sp_execute`). `prepare_connection` lets pyodbc send it with the
  others.

nvarchar holds any 16-bit units, such as half of a surrogate pair, which is no text in Python: pyodbc then reads no row
of the result. The first such row costs one failed receive. From then on, all connections of the process read the half
as U+FFFD. This was not run on SQL Server.

An error closes the cursor of its statement, so that nothing of a lost or changed session is used again. What is kept
holds no results and no shapes of results, and dies with the connection. `benchmarks/round_trips.py` counts the
requests.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import closing, suppress
from threading import Event
from typing import TYPE_CHECKING, Any

from rowpost.database.dialects.sqlserver.odbc import load_pyodbc
from rowpost.database.dialects.sqlserver.transactions import SessionState

if TYPE_CHECKING:
    import pyodbc

__all__ = ["KEPT_STATEMENTS", "SESSION", "PyodbcSession", "all_results", "decode_text", "prepare_connection"]

#: statements that a session keeps a cursor for; the server keeps a few kilobytes for each
KEPT_STATEMENTS = 64
_INLINE_BYTES = 2**30
#: the driver's types of nchar, nvarchar and ntext, from the header sqlucode.h
_TEXTS = (-8, -9, -10)
_DAMAGED = (
    "A row holds text that is no Unicode (half of a surrogate pair). It is read as U+FFFD from now on, on this and on "
    "later connections"
)
#: set when a row with damaged text was met
_damaged_rows = Event()
# What the protocol depends on, whatever the server's `user options` say. Tables with indexes on computed columns,
# filtered indexes and OPENJSON need the first seven (CREATE INDEX, Required SET options). The language of a login and
# with it the order of day and month, the first day of the week, NOCOUNT and XACT_ABORT stay: procedures set what they
# need of these, and write times in a form that has one order.
SESSION = (
    "SET ANSI_NULLS, QUOTED_IDENTIFIER, ANSI_PADDING, ANSI_WARNINGS, ARITHABORT, CONCAT_NULL_YIELDS_NULL ON; SET "
    "NUMERIC_ROUNDABORT, IMPLICIT_TRANSACTIONS OFF; SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET ROWCOUNT 0; "
    "SET TEXTSIZE 2147483647;"
)


class PyodbcSession:
    """A connection of pyodbc with its kept statements. Not for several threads at once."""

    def __init__(self, connection: pyodbc.Connection) -> None:
        self.connection = connection
        #: the session's state before any handler had it; None until it is read
        self.first: SessionState | None = None
        #: whether a handler had the connection
        self.lent = False
        self._cursors: OrderedDict[str, pyodbc.Cursor] = OrderedDict()

    @property
    def reads_state(self) -> bool:
        """Whether the next BEGIN reads the session's state."""
        return self.lent or self.first is None

    def run(self, text: str, sizes: Sequence[Any] = (), values: Sequence[Any] = ()) -> list[list[Any]]:
        """Execute a batch, and return the driver's rows of each result.

        Args:
            text: the same for the same statement, or none is kept for it.
            sizes: the driver's type of each value; always the same for a text.
            values: without None.

        Raises:
            pyodbc.Error: what the server or the driver said, or a row holds damaged text.
        """
        try:
            return self._run(text, sizes, values)
        except UnicodeDecodeError as error:
            _damaged_rows.set()
            _read_damaged(self.connection)
            raise load_pyodbc().DataError("22021", f"{_DAMAGED}: {error.reason}") from error

    def _run(self, text: str, sizes: Sequence[Any], values: Sequence[Any]) -> list[list[Any]]:
        if not values:
            with closing(self.connection.cursor()) as cursor:  # a cursor as a block would commit
                cursor.execute(text)
                return all_results(cursor)
        cursor = self._cursors.pop(text, None) or self.connection.cursor()
        try:
            cursor.setinputsizes(sizes)
            cursor.execute(text, values)
            results = all_results(cursor)
        except BaseException:
            _close(cursor)
            raise
        self._cursors[text] = cursor
        if len(self._cursors) > KEPT_STATEMENTS:
            _close(self._cursors.popitem(last=False)[1])
        return results


def prepare_connection(connection: pyodbc.Connection) -> None:
    """Give a connection that rowpost has opened its settings, in one round trip, and let the driver send long values
    within a request.

    Raises:
        pyodbc.Error: the connection was lost.
    """
    connection.maxwrite = _INLINE_BYTES
    connection.execute(SESSION).close()
    if _damaged_rows.is_set():
        _read_damaged(connection)


def decode_text(data: bytes | None) -> str | None:
    """Return the text of a value of nvarchar, with U+FFFD for each half of a surrogate pair."""
    return None if data is None else data.decode("utf-16-le", "replace")


def _read_damaged(connection: pyodbc.Connection) -> None:
    for kind in _TEXTS:
        connection.add_output_converter(kind, decode_text)


def all_results(cursor: pyodbc.Cursor) -> list[list[Any]]:
    """Return the driver's rows of every result. Reads to the end, so that an error that follows a row is raised."""
    results: list[list[Any]] = []
    while True:
        if cursor.description is not None:
            results.append(cursor.fetchall())
        if not cursor.nextset():
            return results


def _close(cursor: pyodbc.Cursor) -> None:
    with suppress(Exception):  # of a connection that is lost or closed
        cursor.close()
