"""Logical replication slots of PostgreSQL: what they hold, create, confirm and drop them.

A slot keeps the server's log (WAL) from `restart` on, until its reader has confirmed a later position. `judge_slot` says whether
that is a danger. All functions take a psycopg connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2s
from typing import Any

import psycopg
from psycopg.errors import ObjectInUse, QueryCanceled

from rowpost.database.dialects.pgoutput import format_lsn, parse_lsn
from rowpost.database.dialects.postgresql_checks import READ_ONLY_REMEDY
from rowpost.database.dialects.postgresql_errors import first_line, translate
from rowpost.database.dialects.protocol import Check
from rowpost.errors import DatabaseError, DatabaseUnavailable, LockTimeout, PermissionDenied

__all__ = [
    "NO_REPLICATION", "SYNTAX_OF_LSN", "LogState", "PublishedTable", "Slot", "advance_slot", "create_slot", "create_statement", "describe_log", "drop_slot",
    "drop_statement", "judge_slot", "list_slots", "publication_name", "slot_checks", "slot_name",
]  # fmt: skip

SYNTAX_OF_LSN = re.compile(r"[0-9A-F]{1,8}/[0-9A-F]{1,8}")
_LONGEST_NAME = 63
_PLUGIN = "pgoutput"
_FAILOVER_FROM = 170000
NO_REPLICATION = "The login may not read the server's log: {said}. An administrator runs: ALTER ROLE <login> REPLICATION; on Amazon RDS: GRANT rds_replication TO <login>."
_STATE = """
SELECT pg_is_in_recovery(), current_setting('wal_level'), (SELECT c.system_identifier::text FROM pg_control_system() AS c),
    CASE WHEN NOT pg_is_in_recovery() THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint END,
    CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_flush_lsn()::text END,
    clock_timestamp() AT TIME ZONE 'UTC', current_database()::text
"""
_TABLES = """
SELECT p.pubname::text, format('%%s/%%I.%%I#%%s/%%s', current_database(), n.nspname, c.relname, c.oid, r.oid), c.oid::bigint
FROM pg_catalog.pg_publication AS p
JOIN pg_catalog.pg_publication_rel AS r ON r.prpubid = p.oid
JOIN pg_catalog.pg_class AS c ON c.oid = r.prrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE p.pubname = ANY (%s) AND p.pubinsert
"""
_SLOTS = """
SELECT to_jsonb(s), pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, s.restart_lsn)::bigint,
    clock_timestamp()
FROM pg_catalog.pg_replication_slots AS s
WHERE s.slot_type = 'logical' AND s.database = current_database() AND (%(name)s::text IS NULL OR s.slot_name = %(name)s)
ORDER BY s.slot_name
"""
_ELSEWHERE = "SELECT s.database::text FROM pg_catalog.pg_replication_slots AS s WHERE s.slot_name = %s"
#: who keeps a new slot from its start: transactions that began before it and still write
_WRITERS = """
SELECT string_agg(format('process %s (%s) since %s', a.pid, a.application_name, a.xact_start), '; ' ORDER BY a.xact_start)
FROM pg_catalog.pg_stat_activity AS a
WHERE a.backend_xid IS NOT NULL AND a.pid <> pg_backend_pid()
"""
#: from here on, a slot is worth a word
NOTED_BYTES = 1 << 30
NOTED_AGE = timedelta(days=1)


@dataclass(frozen=True)
class Slot:
    """A logical slot of this database.

    Attributes:
        confirmed: LSN up to which its reader has confirmed.
        status: wal_status of the server: reserved, extended, unreserved or lost.
        process: the server process that uses it; None if nobody does.
        held_bytes: size of the log that it keeps; None if the server has removed it.
        safe_bytes: how much may still be written before the server removes its log; None without max_slot_wal_keep_size.
        inactive: for how long nobody has used it; None if somebody does, or before PostgreSQL 17.
        reason: why it is lost, from PostgreSQL 17 on.
        failover: whether a standby keeps it too.
    """

    name: str
    plugin: str
    confirmed: int
    status: str | None
    process: int | None
    held_bytes: int | None
    safe_bytes: int | None = None
    inactive: timedelta | None = None
    reason: str | None = None
    failover: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether its reader has lost a part of the log."""
        return self.status == "lost" or self.reason is not None


@dataclass(frozen=True)
class PublishedTable:
    """A table of a publication.

    Attributes:
        identity: the table, and its entry in the publication. It changes if one of them is dropped and created again.
        oid: the table's OID.
    """

    identity: str
    oid: int


@dataclass(frozen=True)
class LogState:
    """What a reader of the log must know.

    Attributes:
        system: the identifier of the server's data.
        timeline: its history; a standby that is promoted begins another one.
        flushed: LSN up to which the log is durable.
        now: the server's clock (UTC).
        slot: the slot that was asked for, if it exists.
        tables: by publication; those that do not exist, or publish no inserts, are missing.
    """

    system: str
    timeline: int
    flushed: int
    wal_level: str
    now: datetime
    database: str
    slot: Slot | None
    tables: dict[str, PublishedTable]


def slot_name(database: str, queues: Sequence[str]) -> str:
    """Return the name of the slot of a stream, of the characters that a slot may have.

    >>> slot_name("shop", ["audit"]), slot_name("shop", ["Sales.Orders"])
    ('rowpost_shop_audit', 'rowpost_shop_sales_orders_a0a7c4b2')
    """
    whole = "/".join((database, *queues))
    plain = "rowpost_" + re.sub(r"[^a-z0-9]+", "_", "_".join((database, *queues)).lower())
    if plain == "rowpost_" + "_".join((database, *queues)) and len(plain) <= _LONGEST_NAME and len(queues) == 1:
        return plain
    digest = blake2s(whole.encode(), digest_size=4).hexdigest()
    return f"{plain[: _LONGEST_NAME - len(digest) - 1]}_{digest}"


def publication_name(queue_key: str) -> str:
    """Return the name of a queue's publication, as create_publication.sql spells it."""
    return f"rowpost_log:{queue_key}"


def describe_log(connection: psycopg.Connection, slot: str, publications: Sequence[str]) -> LogState:
    """Return the state of the log, a slot and some publications.

    Raises:
        DatabaseUnavailable: the server is a standby.
        psycopg.Error: the connection was lost.
    """
    recovery, wal_level, system, timeline, flushed, now, database = connection.execute(_STATE, prepare=False).fetchone()  # type: ignore[misc]
    if recovery:
        raise DatabaseUnavailable(f"The server is a standby, whose log this stream does not read: {READ_ONLY_REMEDY}.")
    found = next(iter(list_slots(connection, slot)), None)
    rows = connection.execute(_TABLES, (list(publications),), prepare=False).fetchall()
    tables = {name: PublishedTable(identity, oid) for name, identity, oid in rows}
    return LogState(system, timeline, parse_lsn(flushed), wal_level, now, database, found, tables)


def list_slots(connection: psycopg.Connection, name: str | None = None) -> list[Slot]:
    """Return the logical slots of this database, or the one of that name."""
    return [_slot(*row) for row in connection.execute(_SLOTS, {"name": name}, prepare=False).fetchall()]


def _slot(row: dict[str, Any], held: int | None, now: datetime) -> Slot:
    since = row.get("inactive_since")
    return Slot(
        name=row["slot_name"],
        plugin=row["plugin"],
        confirmed=parse_lsn(row["confirmed_flush_lsn"] or "0/0"),
        status=row["wal_status"],
        process=row["active_pid"],
        held_bytes=held,
        safe_bytes=row["safe_wal_size"],
        inactive=None if since is None else now - datetime.fromisoformat(since),
        reason=row.get("invalidation_reason"),
        failover=bool(row.get("failover")),
    )


def create_statement(name: str, server_version: int) -> str:
    """Spell the statement that creates a slot. From PostgreSQL 17 on, a standby may keep it too (sync_replication_slots)."""
    failover = ", failover => true" if server_version >= _FAILOVER_FROM else ""
    return f"SELECT pg_create_logical_replication_slot('{name}', '{_PLUGIN}'{failover});"


def drop_statement(name: str) -> str:
    """Spell the statement that drops a slot."""
    return f"SELECT pg_drop_replication_slot('{name}');"


def create_slot(connection: psycopg.Connection, name: str, wait_s: float) -> None:
    """Create a slot. It begins when all transactions that write now have ended.

    Raises:
        LockTimeout: they did not end in time. There is no slot then.
        PermissionDenied: the login has no right to it.
        DatabaseError: the server refused, for example because another database has a slot of that name.
    """
    try:
        with connection.transaction():
            connection.execute("SELECT set_config('statement_timeout', %s, true)", (f"{max(int(wait_s * 1000), 1)}ms",), prepare=False)
            connection.execute(create_statement(name, connection.info.server_version).encode(), prepare=False)
    except QueryCanceled as error:
        (writers,) = connection.execute(_WRITERS, prepare=False).fetchone() or (None,)
        raise LockTimeout(
            f"The slot {name} was not created within {wait_s:g} seconds, because it begins when all transactions have ended that write now: "
            f"{writers or 'they have ended since'}. End them, or start again later."
        ) from error
    except psycopg.Error as error:
        raise _refusal(connection, name, error) from error


def _refusal(connection: psycopg.Connection, name: str, error: psycopg.Error) -> Exception:
    if error.sqlstate == "42501":
        return PermissionDenied(NO_REPLICATION.format(said=first_line(error)))
    if error.sqlstate == "42710":
        (database,) = connection.execute(_ELSEWHERE, (name,), prepare=False).fetchone() or (None,)
        return DatabaseError(
            f"The slot {name} exists already, in the database {database}: names of slots belong to the whole server. Set the option slot to another name."
        )
    if error.sqlstate == "53400":
        return DatabaseError(
            f"The slot {name} was not created: {first_line(error)}. Drop slots that nobody needs, or set max_replication_slots higher and restart the server."
        )
    return translate(error)


def advance_slot(connection: psycopg.Connection, name: str, upto: int) -> None:
    """Confirm all transactions that committed below an LSN. One that is confirmed already changes nothing.

    Raises:
        DatabaseUnavailable: a connection still uses the slot; try again.
        PermissionDenied: the login has no right to it.
    """
    found = next(iter(list_slots(connection, name)), None)
    if found is None or found.is_lost or found.confirmed >= upto:
        return  # a stream is told about a slot that is gone before it reads
    try:
        connection.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (name, format_lsn(upto)), prepare=False)
    except ObjectInUse as error:
        raise DatabaseUnavailable(f"Another connection reads the log by this stream's slot: {first_line(error)}.") from error
    except psycopg.Error as error:
        raise _refusal(connection, name, error) from error


def drop_slot(connection: psycopg.Connection, name: str) -> None:
    """Drop a slot. Raises DatabaseError if it does not exist or somebody uses it."""
    try:
        connection.execute(drop_statement(name).encode(), prepare=False)
    except ObjectInUse as error:
        raise DatabaseError(f"The slot {name} is in use: {first_line(error)}. Stop the stream that reads it, then drop it.") from error
    except psycopg.Error as error:
        raise _refusal(connection, name, error) from error


def judge_slot(slot: Slot, keep_size: str) -> Check:
    """Say whether a slot is a danger to the server's disk, or has lost its log.

    Args:
        keep_size: max_slot_wal_keep_size as the server shows it.
    """
    name = f"replication slot {slot.name}"
    if slot.is_lost:
        found = f"the server has removed log that its reader has not read ({slot.reason or slot.status})"
        return Check(name, "bad", found, f"its stream must start with a new slot and checkpoint; an administrator runs: {drop_statement(slot.name)}")
    held = slot.held_bytes or 0
    used = (
        f"in use by process {slot.process}" if slot.process is not None else "not in use" + (f" for {_span(slot.inactive)}" if slot.inactive else "")
    )
    limit = (
        "max_slot_wal_keep_size is not set, so that it fills the disk if nobody reads it"
        if keep_size == "-1"
        else f"max_slot_wal_keep_size is {keep_size}"
    )
    found = f"{used}; it holds back {held / (1 << 20):,.1f} MiB of log; {limit}"
    if slot.status == "unreserved":
        return Check(name, "bad", f"{found}; the server may remove its log at any moment", "start its stream now, so that it reads on")
    if slot.process is None and (held >= NOTED_BYTES or (slot.inactive is not None and slot.inactive >= NOTED_AGE)):
        return Check(name, "note", found, f"start its stream; if nobody needs it, an administrator runs: {drop_statement(slot.name)}")
    return Check(name, "ok", found)


def _span(span: timedelta) -> str:
    minutes = int(span.total_seconds() // 60)
    return f"{minutes // 1440} days" if minutes >= 2880 else f"{minutes // 60} hours" if minutes >= 120 else f"{minutes} minutes"


def slot_checks(connection: psycopg.Connection) -> Iterator[Check]:
    """Check all logical slots of this database."""
    (keep_size,) = connection.execute("SELECT current_setting('max_slot_wal_keep_size')", prepare=False).fetchone()  # type: ignore[misc]
    for slot in list_slots(connection):
        yield judge_slot(slot, keep_size)
