SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[describe_stream:{queue_key}]
AS
/*
Returns the identity of the queue's table, its last assigned row version, and the transactions that may still commit one.
A row version is drawn before its transaction commits: a reader that goes by the highest one that it sees steps over
slower writers' rows.
Atomicity: reads only.
Locking:   none.
Babelfish: no sys.dm_tran_locks and no identity that says whether one was ever drawn; PostgreSQL's catalog tells both.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @table int = OBJECT_ID(N'{queue_table}', N'U');
DECLARE @relation nvarchar(400) = LOWER(CONCAT(N'"', DB_NAME(), N'_', N'{schema_name}', N'"."', N'{table_name}', N'"'));
-- First the identity, then the locks: in the other order a writer that starts in between would be missed.
DECLARE @last bigint = ISNULL(pg_catalog.pg_sequence_last_value(pg_catalog.pg_get_serial_sequence(@relation, N'rowversion')), 0);
DECLARE @writers nvarchar(max) = (
    SELECT STRING_AGG(CAST(CONCAT(N'"', w.writer, N'"') AS nvarchar(max)), N',')
    FROM
    (
        SELECT DISTINCT l.virtualtransaction AS writer
        FROM pg_catalog.pg_locks AS l
        WHERE l.locktype = N'relation'
          AND CAST(l.relation AS int) = @table
          AND l.mode IN (N'RowExclusiveLock', N'ShareRowExclusiveLock', N'ExclusiveLock', N'AccessExclusiveLock')
          AND l.pid <> @@SPID
    ) AS w
);

SELECT
    CONCAT(DB_NAME(), N'/', N'{schema_name}', N'.', N'{table_name}', N'#', @table) AS stream_identity,
    (SELECT MIN(q.RowVersion) FROM {queue_table} AS q) AS first_row_version,
    @last AS last_row_version,
    CASE WHEN @writers IS NULL THEN @last END AS settled_row_version,
    CONCAT(N'[', @writers, N']') AS writers,
    (SELECT p.row_version FROM rowpost.purge AS p WHERE p.queue_key = N'{queue_key}') AS purged_row_version,
    (
        SELECT COUNT(*)
        FROM sys.dm_exec_sessions AS s
        WHERE s.database_id = DB_ID()
          AND s.program_name LIKE N'rowpost worker ' + REPLACE(REPLACE(REPLACE(N'{queue_name}', N'[', N'[[]'), N'_', N'[_]'), N'%', N'[%]') + N' %'
    ) AS consumers
FROM sys.tables AS t
WHERE t.object_id = @table;
GO
