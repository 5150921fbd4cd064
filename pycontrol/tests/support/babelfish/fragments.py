"""Statements of single procedures that Babelfish lacks, and the statements that the tests run instead.

Everything else in these procedures is executed as SQL Server gets it.
"""

from __future__ import annotations

__all__ = ["FRAGMENTS"]

_LOCK_SAGA = """    SELECT @id = s.Id
    FROM {saga_table} AS s WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK)
    WHERE s.Id = @id;
"""
#: changes nothing, and locks
_TOUCH_SAGA = """    UPDATE s
    SET s.Concurrency = s.Concurrency
    FROM {saga_table} AS s
    WHERE s.Id = @id;
"""
_CALL = "    EXEC @procedure @headers = @headers, @body = @body, @time_to_be_received_ms = @time_to_be_received_ms;\n"
_DYNAMIC_CALL = """    SET @procedure = CONCAT(N'EXEC ', @procedure, N' @headers = @headers, @body = @body, @time_to_be_received_ms = @time_ms;');
    EXEC sys.sp_executesql @procedure, N'@headers nvarchar(max), @body varbinary(max), @time_ms bigint',
        @headers = @headers, @body = @body, @time_ms = @time_to_be_received_ms;
"""
_READ = "    EXEC @procedure @topics = @topics, @found = @found OUTPUT;\n"
_DYNAMIC_READ = """    SET @procedure = CONCAT(N'DECLARE @x nvarchar(4000) = @f; EXEC ', @procedure, N' @topics = @t, @found = @x OUTPUT; SET @f = @x;');
    EXEC sys.sp_executesql @procedure, N'@t nvarchar(max), @f nvarchar(4000) OUTPUT', @t = @topics, @f = @found OUTPUT;
"""
_WRITE = "    EXEC @procedure @endpoint = @endpoint, @topic = @topic, @queue_address = @queue_address, @new = @new;\n"
_DYNAMIC_WRITE = """    SET @procedure = CONCAT(N'EXEC ', @procedure, N' @endpoint = @e, @topic = @t, @queue_address = @q, @new = @n;');
    EXEC sys.sp_executesql @procedure, N'@e nvarchar(400), @t nvarchar(400), @q nvarchar(200), @n bit',
        @e = @endpoint, @t = @topic, @q = @queue_address, @n = @new;
"""
_LAST_IDENTITY = """DECLARE @last bigint = (
    SELECT CASE WHEN i.last_value IS NULL THEN 0 ELSE CAST(IDENT_CURRENT(N'{queue_table}') AS bigint) END
    FROM sys.identity_columns AS i
    WHERE i.object_id = @table
);
"""
_LAST_OF_SEQUENCE = """DECLARE @relation nvarchar(400) = LOWER(CONCAT(N'"', DB_NAME(), N'_', N'{schema_name}', N'"."', N'{table_name}', N'"'));
DECLARE @last bigint = ISNULL(pg_catalog.pg_sequence_last_value(pg_catalog.pg_get_serial_sequence(@relation, N'rowversion')), 0);
"""
_RIGHT_TO_SEE_LOCKS = """DECLARE @sees_locks bit = CASE
    WHEN CAST(SERVERPROPERTY('EngineEdition') AS int) IN (5, 12) THEN HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'VIEW DATABASE STATE')
    WHEN HAS_PERMS_BY_NAME(NULL, NULL, N'VIEW SERVER STATE') = 1 THEN 1
    ELSE HAS_PERMS_BY_NAME(NULL, NULL, N'VIEW SERVER PERFORMANCE STATE')
END;
"""
_SEES_LOCKS = "DECLARE @sees_locks bit = 1;\n"
_LOCKS = """            SELECT DISTINCT CONCAT(CASE WHEN l.request_session_id < 0 THEN N'-1/' ELSE N'' END, l.request_owner_id) AS writer
            FROM sys.dm_tran_locks AS l
            WHERE l.resource_type = N'OBJECT'
              AND l.resource_database_id = DB_ID()
              AND l.resource_associated_entity_id = @table
              AND l.request_mode IN (N'IX', N'SIX', N'UIX', N'X', N'BU', N'Sch-M')
              AND l.request_session_id <> @@SPID
"""
_POSTGRESQL_LOCKS = """            SELECT DISTINCT l.virtualtransaction AS writer
            FROM pg_catalog.pg_locks AS l
            WHERE l.locktype = N'relation'
              AND CAST(l.relation AS int) = @table
              AND l.mode IN (N'RowExclusiveLock', N'ShareRowExclusiveLock', N'ExclusiveLock', N'AccessExclusiveLock')
              AND l.pid <> @@SPID
"""
_WRITERS = """SELECT
    w.writer AS writer,
    CASE WHEN w.session_id > 0 THEN w.session_id END AS process,
    DATEADD(MINUTE, @to_utc, t.transaction_begin_time) AS since,
    s.program_name AS program
FROM
(
    SELECT DISTINCT
        CONCAT(CASE WHEN l.request_session_id < 0 THEN N'-1/' ELSE N'' END, l.request_owner_id) AS writer,
        l.request_owner_id AS transaction_id,
        l.request_session_id AS session_id
    FROM sys.dm_tran_locks AS l
    WHERE l.resource_type = N'OBJECT'
      AND l.resource_database_id = DB_ID()
      AND l.resource_associated_entity_id = OBJECT_ID(N'{queue_table}', N'U')
      AND l.request_mode IN (N'IX', N'SIX', N'UIX', N'X', N'BU', N'Sch-M')
      AND l.request_session_id <> @@SPID
) AS w
LEFT JOIN sys.dm_exec_sessions AS s ON w.session_id = s.session_id
LEFT JOIN sys.dm_tran_active_transactions AS t ON w.transaction_id = t.transaction_id
ORDER BY t.transaction_begin_time, w.writer;
"""
_POSTGRESQL_WRITERS = """SELECT DISTINCT
    l.virtualtransaction AS writer,
    l.pid AS process,
    CAST(a.xact_start AS datetime2(3)) AS since,
    a.application_name AS program
FROM pg_catalog.pg_locks AS l
LEFT JOIN pg_catalog.pg_stat_activity AS a ON l.pid = a.pid
WHERE l.locktype = N'relation'
  AND CAST(l.relation AS int) = OBJECT_ID(N'{queue_table}', N'U')
  AND l.mode IN (N'RowExclusiveLock', N'ShareRowExclusiveLock', N'ExclusiveLock', N'AccessExclusiveLock')
  AND l.pid <> @@SPID
ORDER BY since, writer;
"""
_OWNER = "SELECT @held_by = s.owned_by, @confirmed = s.confirmed\n"
_LOCKED_OWNER = """DECLARE @none nvarchar(10) = CONCAT(N'', pg_catalog.pg_advisory_xact_lock(CAST(OBJECT_ID(N'{queue_table}', N'U') AS bigint)));

SELECT @held_by = s.owned_by, @confirmed = s.confirmed
"""
_MOVE = """WITH oldest AS (
    SELECT TOP (@count) q.Id, q.CorrelationId, q.ReplyToAddress, q.Expires, q.Headers, q.Body, q.RowVersion
    FROM {queue_table} AS q WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE q.RowVersion <= @last
    ORDER BY q.RowVersion
)
DELETE FROM oldest
OUTPUT N'{queue_key}', deleted.Id, deleted.CorrelationId, deleted.ReplyToAddress, 1, deleted.Expires, deleted.Headers, deleted.Body, deleted.RowVersion
INTO rowpost.spooled_message (queue_key, id, correlation_id, reply_to_address, recoverable, expires, headers, body, row_version)
OPTION (MAXDOP 1);
"""
#: in the transaction that a stream opens; the UPDATE changes nothing, and waits until receivers have ended
_COPY_AND_DELETE = """DECLARE @before bigint = (SELECT ISNULL(MAX(m.number), 0) FROM rowpost.spooled_message AS m WHERE m.queue_key = N'{queue_key}');

UPDATE q
SET q.Id = q.Id
FROM {queue_table} AS q
WHERE q.RowVersion IN (SELECT TOP (@count) o.RowVersion FROM {queue_table} AS o WHERE o.RowVersion <= @last ORDER BY o.RowVersion);

INSERT INTO rowpost.spooled_message (queue_key, id, correlation_id, reply_to_address, recoverable, expires, headers, body, row_version)
SELECT TOP (@count) N'{queue_key}', q.Id, q.CorrelationId, q.ReplyToAddress, 1, q.Expires, q.Headers, q.Body, q.RowVersion
FROM {queue_table} AS q
WHERE q.RowVersion <= @last
ORDER BY q.RowVersion;

DELETE q
FROM {queue_table} AS q
WHERE q.RowVersion IN
(
    SELECT m.row_version
    FROM rowpost.spooled_message AS m
    WHERE m.queue_key = N'{queue_key}' AND m.number > @before
);
"""

_RENEW = """UPDATE l
SET l.due = @due,
    l.progress_percent = ISNULL(r.progress_percent, l.progress_percent),
    l.progress_text = ISNULL(r.progress_text, l.progress_text)
OUTPUT inserted.token
FROM {leased_table} AS l WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
INNER JOIN @renewed AS r ON l.token = r.token
"""
_RENEW_WITHOUT_A_JOIN = """UPDATE {leased_table}
SET due = @due,
    progress_percent = ISNULL((SELECT r.progress_percent FROM @renewed AS r WHERE r.token = {leased_table}.token), progress_percent),
    progress_text = ISNULL((SELECT r.progress_text FROM @renewed AS r WHERE r.token = {leased_table}.token), progress_text)
OUTPUT inserted.token
WHERE token IN (SELECT r.token FROM @renewed AS r)
"""

#: what Babelfish lacks; a statement as SQL Server gets it, and the one that replaces it
FRAGMENTS: tuple[tuple[str, str, str], ...] = (
    ("UPDLOCK: an UPDATE that changes nothing locks the instance", _LOCK_SAGA, _TOUCH_SAGA),
    (
        "the call of a procedure that a variable names: a dynamic call, so that a publisher needs the right to send",
        _CALL,
        _DYNAMIC_CALL,
    ),
    (
        "an output of nvarchar(max): nvarchar(4000)",
        "    @found nvarchar(max) OUTPUT",
        "    @found nvarchar(4000) OUTPUT",
    ),
    (
        "a variable of nvarchar(max) for an output: nvarchar(4000)",
        "DECLARE @others nvarchar(max);",
        "DECLARE @others nvarchar(4000);",
    ),
    (
        "the call of a procedure that a variable names: a dynamic call, which reads a table of subscriptions",
        _READ,
        _DYNAMIC_READ,
    ),
    (
        "the call of a procedure that a variable names: a dynamic call, which writes into a table of subscriptions",
        _WRITE,
        _DYNAMIC_WRITE,
    ),
    ("an identity that says whether one was ever assigned: PostgreSQL's sequence", _LAST_IDENTITY, _LAST_OF_SEQUENCE),
    ("rights by the server's edition", _RIGHT_TO_SEE_LOCKS, _SEES_LOCKS),
    ("sys.dm_tran_locks: PostgreSQL's pg_locks", _LOCKS, _POSTGRESQL_LOCKS),
    ("sys.dm_tran_locks with sessions and transactions: PostgreSQL's pg_locks", _WRITERS, _POSTGRESQL_WRITERS),
    ("HOLDLOCK: an advisory lock of PostgreSQL makes moves wait for one another", _OWNER, _LOCKED_OWNER),
    (
        "DELETE from a common table expression with OUTPUT INTO, and READPAST: INSERT and DELETE, which wait for receivers",
        _MOVE,
        _COPY_AND_DELETE,
    ),
    ("UPDATE with a join and OUTPUT: subqueries, which wait for other sessions", _RENEW, _RENEW_WITHOUT_A_JOIN),
)
