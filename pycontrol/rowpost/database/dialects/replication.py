"""Read a logical replication slot of PostgreSQL through a replication connection.

psycopg has no interface for replication, but libpq treats the stream as COPY in both directions, and psycopg passes these
functions on. `LogStream` sends START_REPLICATION and returns the messages of the plugin pgoutput.

    with LogStream(url, "rowpost spark") as stream:
        stream.start("rowpost_shop_audit", at=0, publications=["rowpost_log:audit"])
        received = stream.receive(timeout_s=1)

The stream never confirms a position. What was received can therefore be received again, until slots.advance_slot confirms it.
A slot serves one connection at a time.
"""

from __future__ import annotations

import re
import selectors
import struct
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

import psycopg
from psycopg.errors import ObjectInUse, ProtocolViolation, error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from rowpost.database.dialects.pgoutput import format_lsn, parse_lsn
from rowpost.database.dialects.postgresql_errors import first_line, translate
from rowpost.database.dialects.postgresql_session import open_connection
from rowpost.database.dialects.slots import NO_REPLICATION, SYNTAX_OF_LSN
from rowpost.errors import DatabaseError, DatabaseUnavailable, PermissionDenied, RowpostError

__all__ = ["LogStream", "Received"]

Result = TypeVar("Result")
_DATA, _KEEPALIVE = b"wk"
_HEAD = 25  # bytes before the plugin's message: kind, its LSN, the log's end, the time
_POSITION = struct.Struct("!Q").unpack_from
_ASKS_FOR_REPLY = 17
_STATUS = struct.Struct("!cQQQqB").pack
#: how long another connection may hold the slot before this is an error: one that was closed takes some milliseconds
RELEASE_TIMEOUT_S = 5.0
#: the server sends each message by itself. Reading each one at once would cost two changes of the process a message
_GATHER_S = 0.001
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.2
#: how servers up to PostgreSQL 15, and newer ones, refuse a login: psycopg knows no SQLSTATE of a refused connection
_NO_RIGHT = re.compile("start walsender|start WAL sender")


@dataclass(frozen=True, slots=True)
class Received:
    """What the server has sent.

    Attributes:
        message: a message of the plugin; None for a report of the position alone.
        position: if there is no message: all transactions that committed below this LSN have been sent.
    """

    message: bytes | None
    position: int = 0


class LogStream:
    """A replication connection to the database of a URL. Not for several threads.

    Raises:
        DatabaseUnavailable: the server cannot be reached.
        PermissionDenied: the login may not replicate.
    """

    def __init__(self, url: str, application_name: str) -> None:
        self._connection = _translated(lambda: open_connection(url, application_name, replication="database"))
        self._pgconn = self._connection.pgconn
        self._pgconn.nonblocking = 0
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._pgconn.socket, selectors.EVENT_READ)

    def switch_point(self, timeline: int, current: int) -> int | None:
        """Return the LSN at which the server left an earlier timeline, or None if its history does not have that timeline."""
        result = self._execute(f"TIMELINE_HISTORY {current}")
        text = (result.get_value(0, 1) or b"").decode()
        for line in text.splitlines():
            fields = line.split("\t")
            if fields[0].strip() == str(timeline) and SYNTAX_OF_LSN.fullmatch(fields[1]):
                return parse_lsn(fields[1])
        return None

    def start(self, slot: str, at: int, publications: Collection[str]) -> None:
        """Start to read at an LSN. Transactions that committed below it are not sent.

        Raises:
            DatabaseUnavailable: another connection uses the slot.
            DatabaseError: the slot or a publication does not exist, or the slot's log was removed.
        """
        names = ",".join('"' + name.replace('"', '""') + '"' for name in publications).replace("'", "''")
        command = f"START_REPLICATION SLOT {slot} LOGICAL {format_lsn(at)} (proto_version '1', publication_names '{names}', binary 'true')"
        end, pause = time.monotonic() + RELEASE_TIMEOUT_S, _FIRST_PAUSE_S
        while True:
            try:
                self._execute(command, ExecStatus.COPY_BOTH)
            except _SlotInUse:
                if time.monotonic() > end:
                    raise
            else:
                return
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def receive(self, timeout_s: float) -> Received | None:
        """Return the next message or report. Returns None if nothing comes in time."""
        pgconn = self._pgconn
        try:
            while True:
                size, data = pgconn.get_copy_data(1)
                if size > 0:
                    if data[0] == _DATA:
                        return Received(bytes(data[_HEAD:]))
                    if data[0] == _KEEPALIVE:
                        if data[_ASKS_FOR_REPLY]:
                            self._report(asks=False)
                        return Received(None, _POSITION(data, 1)[0])
                elif size == 0:
                    if not self._selector.select(0):
                        if not self._selector.select(timeout_s):
                            return None
                        time.sleep(_GATHER_S)
                    pgconn.consume_input()
                else:
                    result = pgconn.get_result()
                    raise ProtocolViolation("the server ended the stream") if result is None else error_from_result(result)
        except psycopg.Error as error:
            raise _refused(error) from error

    def ask_for_position(self) -> None:
        """Ask the server to report its position."""
        try:
            self._report(asks=True)
        except psycopg.Error as error:
            raise translate(error) from error

    def _report(self, *, asks: bool) -> None:
        """Send a status without a position: it confirms nothing."""
        self._pgconn.put_copy_data(_STATUS(b"r", 0, 0, 0, 0, asks))
        self._pgconn.flush()

    def close(self) -> None:
        """Close the connection. The server releases the slot a moment later."""
        self._selector.close()
        self._connection.close()

    def __enter__(self) -> LogStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _execute(self, command: str, expected: ExecStatus = ExecStatus.TUPLES_OK) -> PGresult:
        def run() -> PGresult:
            result = self._pgconn.exec_(command.encode())
            if result.status != expected:
                raise error_from_result(result)
            return result

        return _translated(run)


class _SlotInUse(DatabaseUnavailable):
    """Another connection reads the slot."""


def _translated(act: Callable[[], Result]) -> Result:
    try:
        return act()
    except psycopg.Error as error:
        raise _refused(error) from error


def _refused(error: psycopg.Error) -> RowpostError:
    """Return the server's error as one of rowpost's."""
    said = first_line(error)
    if isinstance(error, ObjectInUse):
        return _SlotInUse(
            f"Another connection reads the log by this stream's slot: {said}. Each stream needs a slot of its own: set the option slot."
        )
    if error.sqlstate == "42501" or _NO_RIGHT.search(said):
        return PermissionDenied(NO_REPLICATION.format(said=said))
    found = translate(error)
    if type(found) is DatabaseError:
        return DatabaseError(
            f"The log cannot be read: {said}. If the publication was created later than the slot, drop the slot and start with a new checkpoint."
        )
    return found
