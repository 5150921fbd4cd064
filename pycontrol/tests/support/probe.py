"""Plain SQL for tests: it prepares what no procedure can prepare, and reads tables and sessions."""

import time
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from rowpost.database.connection import Connection
from rowpost.deploy.entries import describe_queue
from rowpost.settings.environment import QueueSettings
from rowpost.wire.address import parse_address

DEADLINE = 20.0  # seconds


class Probe(ABC):
    """One connection for plain SQL. Names of queues are addresses."""

    def __init__(self, database: Connection, *, babelfish: bool = False) -> None:
        self.database = database
        self.babelfish = babelfish

    def run(self, statement: str, *values: Any) -> list[tuple]:
        """Run a statement with `?` for each value, and return its rows."""
        cursor = self.database.driver_connection.cursor()
        if self.database.engine == "postgresql":
            cursor.execute(statement.replace("%", "%%").replace("?", "%s"), values)
        else:
            cursor.execute(statement, *values)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def value(self, statement: str, *values: Any) -> Any:
        return self.run(statement, *values)[0][0]

    def table(self, queue: str) -> str:
        """Return the quoted name of the queue's table."""
        address = parse_address(queue).qualified(self.database.engine)
        quote = self.database.dialect.quote
        return f"{quote(address.schema)}.{quote(address.table)}"

    def make_table_like(self, like: str, name: str) -> None:
        """Make a table that nobody registers, with the columns of a queue's, as another system makes one."""
        if self.database.engine == "postgresql":
            self.run(f"CREATE TABLE {self.table(name)} (LIKE {self.table(like)} INCLUDING ALL)")
        else:
            self.run(f"SELECT * INTO {self.table(name)} FROM {self.table(like)} WHERE 1 = 0")

    def empty(self, queue: str) -> None:
        self.run(f"DELETE FROM {self.table(queue)}")

    def wait_until_expired(self, queue: str) -> None:
        """Wait until the server reports an expired message in the queue."""
        end = time.monotonic() + DEADLINE
        while not any(row[0] for row in self.database.call("browse_messages", queue=queue, count=100) if row[2]):
            assert time.monotonic() < end, f"nothing in {queue} expired within {DEADLINE} s"

    def drop_queue(self, queue: str) -> None:
        entry = describe_queue(QueueSettings(queue), self.database.engine)
        for (name,) in self.run(self.PROCEDURES, f"%:{entry.key}"):
            if name.partition(":")[2].casefold() == entry.key.casefold():  # Babelfish has lower-case names
                kind, how = ("FUNCTION", " CASCADE") if self.database.engine == "postgresql" else ("PROCEDURE", "")
                self.run(f"DROP {kind} rowpost.{self.database.dialect.quote(name)}{how}")
        if self.database.engine == "postgresql":
            self.run(f"DROP SEQUENCE IF EXISTS rowpost.{self.database.dialect.quote(f'waiters:{entry.key}')}")
        self.run("DELETE FROM rowpost.journal WHERE script_name LIKE ?", f"%:{entry.key}")
        self.run("DELETE FROM rowpost.queue WHERE queue_key = ?", entry.key)
        names = entry.placeholders(self.database.dialect)
        for table in (names["queue_table"], names["delayed_table"], names["leased_table"]):
            self.run(f"DROP TABLE IF EXISTS {table}")

    PROCEDURES: str

    def column_values(self, queue: str, column: str) -> list[Any]:
        """Return the values of a column in the order of row versions."""
        return [row[0] for row in self.run(f"SELECT {column} FROM {self.table(queue)} ORDER BY {self.ROW_VERSION}")]

    ROW_VERSION: str

    def drop_column(self, queue: str, column: str) -> None:
        self.run(f"ALTER TABLE {self.table(queue)} DROP COLUMN {column}")

    @abstractmethod
    def insert_minimal(self, queue: str, headers: str, body: bytes | None) -> UUID: ...

    @abstractmethod
    def columns(self, queue: str) -> dict[str, str]:
        """Return the columns in their order, with the type of each."""

    @abstractmethod
    def session_settings(self) -> Any: ...

    @abstractmethod
    def utc_now(self) -> datetime: ...

    @abstractmethod
    def row_locks(self, queue: str) -> int: ...

    @abstractmethod
    def sessions_waiting_for_sagas(self) -> int: ...

    @abstractmethod
    def insert_expired(self, queue: str, count: int) -> None: ...

    @abstractmethod
    def send_malformed_messages(self, queue: str) -> None: ...


class PostgreSQLProbe(Probe):
    PROCEDURES = "SELECT proname FROM pg_proc WHERE pronamespace = 'rowpost'::regnamespace AND proname LIKE ?"
    ROW_VERSION = "seq"

    def insert_minimal(self, queue: str, headers: str, body: bytes | None) -> UUID:
        row_id = uuid4()
        self.run(f"INSERT INTO {self.table(queue)} (id, headers, body) VALUES (?, ?, ?)", row_id, headers, body)
        return row_id

    def columns(self, queue: str) -> dict[str, str]:
        return dict(
            self.run(
                "SELECT attname, format_type(atttypid, atttypmod) || CASE WHEN attnotnull THEN ' not null' ELSE '' END"
                " FROM pg_attribute WHERE attrelid = ?::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
                self.table(queue),
            )
        )

    def session_settings(self) -> Any:
        return self.run("SELECT name, setting FROM pg_settings WHERE name <> 'transaction_read_only' ORDER BY name")

    def utc_now(self) -> datetime:
        return self.value("SELECT clock_timestamp()").astimezone(UTC)

    def row_locks(self, queue: str) -> int:
        """Count the rows of the queue that are locked."""
        free = self.run(f"SELECT seq FROM {self.table(queue)} FOR UPDATE SKIP LOCKED")
        return self.value(f"SELECT count(*) FROM {self.table(queue)}") - len(free)

    def sessions_waiting_for_sagas(self) -> int:
        return self.value(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%saga%'"
        )

    def insert_expired(self, queue: str, count: int) -> None:
        self.run(
            f"INSERT INTO {self.table(queue)} (id, expires, headers)"
            " SELECT gen_random_uuid(), now() AT TIME ZONE 'UTC' - interval '1 minute', '' FROM generate_series(1, ?)",
            count,
        )

    def send_malformed_messages(self, queue: str) -> None:
        key = describe_queue(QueueSettings(queue), "postgresql").key
        with self.database.translated():
            self.run(
                f"SELECT rowpost.{self.database.dialect.quote(f'send_messages:{key}')}(ARRAY['a', 'b'], ARRAY[''::bytea])"
            )

    def reuse_space(self, queue: str) -> None:
        """Vacuum the table, so that new rows can take the space of deleted rows."""
        self.run(f"VACUUM {self.table(queue)}")


class SQLServerProbe(Probe):
    PROCEDURES = "SELECT name FROM sys.procedures WHERE name LIKE ?"
    ROW_VERSION = "RowVersion"

    def insert_minimal(self, queue: str, headers: str, body: bytes | None) -> UUID:
        row_id = uuid4()
        # literals: the driver binds no text of more than 4,000 characters here
        values = f"N'{headers.replace(chr(39), chr(39) * 2)}', {'NULL' if body is None else f'0x{body.hex()}'}"
        self.run(f"INSERT INTO {self.table(queue)} (Id, Recoverable, Headers, Body) VALUES (?, 1, {values})", row_id)
        return row_id

    def columns(self, queue: str) -> dict[str, str]:
        return dict(
            self.run(
                "SELECT c.name, TYPE_NAME(c.user_type_id)"
                " + CASE WHEN TYPE_NAME(c.user_type_id) IN ('varchar', 'varbinary') THEN '(' + CAST(c.max_length AS varchar(10)) + ')'"
                " WHEN TYPE_NAME(c.user_type_id) = 'nvarchar'"
                " THEN '(' + CAST(CASE c.max_length WHEN -1 THEN -1 ELSE c.max_length / 2 END AS varchar(10)) + ')' ELSE '' END"
                " + CASE WHEN c.is_nullable = 1 THEN '' ELSE ' not null' END"
                " FROM sys.columns AS c WHERE c.object_id = OBJECT_ID(?) ORDER BY c.column_id",
                self.table(queue),
            )
        )

    def reuse_space(self, queue: str) -> None:
        """Do nothing: the clustered index gives the order of rows."""

    def drop_column(self, queue: str, column: str) -> None:
        constraints = self.run(
            "SELECT d.name FROM sys.default_constraints AS d WHERE d.parent_object_id = OBJECT_ID(?)", self.table(queue)
        )
        # Babelfish reports other names than it uses, and drops a default together with its column
        for (name,) in () if self.babelfish else constraints:
            self.run(f"ALTER TABLE {self.table(queue)} DROP CONSTRAINT {self.database.dialect.quote(name)}")
        super().drop_column(queue, column)

    def session_settings(self) -> Any:
        return (
            self.value("SELECT @@OPTIONS"),
            self.value(
                "SELECT CAST(transaction_isolation_level AS int) FROM sys.dm_exec_sessions WHERE session_id = @@SPID"
            ),
        )

    def utc_now(self) -> datetime:
        return self.value("SELECT SYSUTCDATETIME()").replace(tzinfo=UTC)

    def row_locks(self, queue: str) -> int:
        if self.babelfish:
            pytest.skip("Babelfish has no sys.dm_tran_locks")
        return self.value("SELECT COUNT(*) FROM sys.dm_tran_locks WHERE resource_type IN ('KEY', 'RID', 'PAGE')")

    def sessions_waiting_for_sagas(self) -> int:
        if self.babelfish:  # Babelfish has no sys.dm_exec_requests, but the PostgreSQL below it has pg_stat_activity
            return self.value(
                "SELECT COUNT(*) FROM pg_catalog.pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%saga%'"
            )
        return self.value("SELECT COUNT(*) FROM sys.dm_exec_requests WHERE blocking_session_id <> 0")

    def insert_expired(self, queue: str, count: int) -> None:
        self.run(
            f"INSERT INTO {self.table(queue)} (Id, Recoverable, Expires, Headers)"
            f" SELECT TOP ({int(count)}) NEWID(), 1, DATEADD(MINUTE, -1, GETUTCDATE()), N''"
            " FROM sys.all_columns AS a CROSS JOIN sys.all_columns AS b"
        )

    def send_malformed_messages(self, queue: str) -> None:
        key = describe_queue(QueueSettings(queue), "sqlserver").key
        with self.database.translated():
            self.run(f"EXEC rowpost.{self.database.dialect.quote(f'send_messages:{key}')} @messages = N'not JSON'")


def probe_for(database: Connection, *, babelfish: bool = False) -> Probe:
    """Return the probe for the database's engine."""
    kind = PostgreSQLProbe if database.engine == "postgresql" else SQLServerProbe
    return kind(database, babelfish=babelfish)
