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
last row version: a transaction that is not among the writers has committed everything up to it.
A readable secondary does not show the locks of the primary's writers. There settled_row_version is NULL, and on_standby is 1.
Rights:    to see locks needs VIEW SERVER STATE, from SQL Server 2022 on VIEW SERVER PERFORMANCE STATE, in Azure SQL Database
           VIEW DATABASE STATE. Without the right writers and settled_row_version are NULL, and everything else is returned.
Atomicity: reads only.
Locking:   none.
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
DECLARE @writers nvarchar(max);
DECLARE @on_standby bit = CASE WHEN DATABASEPROPERTYEX(DB_NAME(), N'Updateability') = N'READ_ONLY' THEN 1 ELSE 0 END;
DECLARE @sees_locks bit = CASE
    WHEN CAST(SERVERPROPERTY('EngineEdition') AS int) IN (5, 12) THEN HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'VIEW DATABASE STATE')
    WHEN HAS_PERMS_BY_NAME(NULL, NULL, N'VIEW SERVER STATE') = 1 THEN 1
    ELSE HAS_PERMS_BY_NAME(NULL, NULL, N'VIEW SERVER PERFORMANCE STATE')
END;

SET XACT_ABORT OFF; -- A right that is missing must not end the caller's transaction.

BEGIN TRY
    -- A transaction without a session was prepared by a coordinator. After a restart of the server it may have another number.
    IF @sees_locks = 1
        SET @writers = ISNULL((
            SELECT DISTINCT CONCAT(CASE WHEN l.request_session_id < 0 THEN N'-1/' ELSE N'' END, l.request_owner_id) AS writer
            FROM sys.dm_tran_locks AS l
            WHERE l.resource_type = N'OBJECT'
              AND l.resource_database_id = DB_ID()
              AND l.resource_associated_entity_id = @table
              AND l.request_mode IN (N'IX', N'SIX', N'UIX', N'X', N'BU', N'Sch-M')
              AND l.request_session_id <> @@SPID
            FOR JSON PATH
        ), N'[]');
END TRY
BEGIN CATCH
    SET XACT_ABORT ON;

    -- Some service objectives of Azure SQL Database require a right on the server, which HAS_PERMS_BY_NAME does not know.
    IF ERROR_NUMBER() NOT IN (262, 297, 300)
        THROW;
END CATCH;

SET XACT_ABORT ON;

IF @writers = N'[]' AND @on_standby = 0
    SET @settled = @last;

SELECT
    CONCAT(DB_NAME(), N'/', N'{schema_name}', N'.', N'{table_name}', N'#', @table, N':', CONVERT(nvarchar(30), t.create_date, 126)) AS stream_identity,
    (SELECT MIN(q.RowVersion) FROM {queue_table} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)) AS first_row_version,
    @last AS last_row_version,
    @settled AS settled_row_version,
    @writers AS writers,
    (SELECT p.row_version FROM rowpost.purge AS p WHERE p.queue_key = N'{queue_key}') AS purged_row_version,
    (
        SELECT COUNT(*)
        FROM sys.dm_exec_sessions AS s
        WHERE s.database_id = DB_ID()
          AND s.program_name LIKE N'rowpost worker ' + REPLACE(REPLACE(REPLACE(N'{queue_name}', N'[', N'[[]'), N'_', N'[_]'), N'%', N'[%]') + N' %'
    ) AS consumers,
    @on_standby AS on_standby
FROM sys.tables AS t
WHERE t.object_id = @table;
GO
