SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[describe_stream:{queue_key}]
AS
/*
Says which table the queue is, how far its row versions are drawn, and who may still commit one of those.
A row version is drawn before its transaction commits: a reader that goes by the highest
one that it sees steps over slower writers' rows.
A writer holds its intent lock on the table from before it draws until it ends, so that whoever is not among the
writers, looked at after the last row version, has committed all that it drew up to there. To see locks needs VIEW
DATABASE STATE; without it a shared lock on the table, waited for a moment, tells that nobody writes.
Atomicity: reads only.
Locking:   none; without the right to see locks a shared lock on the table, for this statement and at most 200 ms.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

DECLARE @table int = OBJECT_ID(N'{queue_table}', N'U');
-- the identity first, then the locks: the other way round a writer could draw in between and not be seen
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
    SET XACT_ABORT OFF; -- a lock that is not granted in time must not end the caller's transaction
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
