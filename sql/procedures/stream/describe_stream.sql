SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[describe_stream:{queue_key}]
AS
/*
Returns the identity of the queue's table, its last assigned row version, and the transactions that may still commit one.
A row version is assigned before its transaction commits. A reader that continues after the highest row version that it
sees would therefore skip the rows of slower writers.
A writer holds its intent lock on the table from before it gets a row version until it ends. The locks are read after the
last row version: a transaction that is not among the writers has committed everything up to it. To see locks needs VIEW
DATABASE STATE. Without that right, a shared lock on the table, if granted within 200 ms, shows that nobody writes.
Atomicity: reads only.
Locking:   none; without the right to see locks a shared lock on the table, for this statement and at most 200 ms.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

DECLARE @table int = OBJECT_ID(N'{queue_table}', N'U');
-- First the identity, then the locks: in the other order a writer that starts in between would be missed.
DECLARE @last bigint = (
    SELECT CASE WHEN i.last_value IS NULL THEN 0 ELSE CAST(IDENT_CURRENT(N'{queue_table}') AS bigint) END
    FROM sys.identity_columns AS i
    WHERE i.object_id = @table
);
DECLARE @settled bigint;
DECLARE @writers nvarchar(max) = N'["unknown"]';
DECLARE @sees_locks bit = CASE
    WHEN HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'VIEW DATABASE STATE') = 1 THEN 1
    WHEN HAS_PERMS_BY_NAME(NULL, NULL, N'VIEW SERVER STATE') = 1 THEN 1
    ELSE 0
END;

IF @sees_locks = 1
BEGIN
    SET @writers = ISNULL((
        SELECT DISTINCT l.request_owner_id AS writer
        FROM sys.dm_tran_locks AS l
        WHERE l.resource_type = N'OBJECT'
          AND l.resource_database_id = DB_ID()
          AND l.resource_associated_entity_id = @table
          AND l.request_mode IN (N'IX', N'SIX', N'UIX', N'X', N'BU', N'Sch-M')
          AND l.request_session_id <> @@SPID
        FOR JSON PATH
    ), N'[]');

    IF @writers = N'[]'
        SET @settled = @last;
END;
ELSE
BEGIN
    SET XACT_ABORT OFF; -- A lock that is not granted in time must not end the caller's transaction.
    SET LOCK_TIMEOUT 200;

    BEGIN TRY
        DECLARE @seen bigint = (SELECT MAX(q.RowVersion) FROM {queue_table} AS q WITH (TABLOCK, HOLDLOCK));
        SET @settled = ISNULL(@seen, 0);
        SET @writers = N'[]';
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222
            THROW;
    END CATCH;
END;

SELECT
    CONCAT(DB_NAME(), N'/', N'{schema_name}', N'.', N'{table_name}', N'#', @table, N':', CONVERT(nvarchar(30), t.create_date, 126)) AS stream_identity,
    (SELECT MIN(q.RowVersion) FROM {queue_table} AS q) AS first_row_version,
    @last AS last_row_version,
    @settled AS settled_row_version,
    @writers AS writers,
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
