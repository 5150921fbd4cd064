SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.clean_operation_log
    @retention_seconds int, -- only operations that began before
    @count int -- how many at most, 1 to 4000; call until fewer were removed
AS
/*
Deletes operations that began before the retention time, but none that a process still executes.
Atomicity: one DELETE in the caller's transaction, of fewer rows than the threshold of SQL Server's lock escalation.
Locking:   skips locked rows and never waits.
Order:     the oldest first, by the index on started_at.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 4000
    THROW 51003, N'The number of rows to remove must be between 1 and 4000.', 1;

IF @retention_seconds IS NULL OR @retention_seconds < 0
    THROW 51003, N'The retention time must be 0 seconds or more.', 1;

DECLARE @now datetime2(3) = SYSUTCDATETIME();

WITH old AS (
    SELECT TOP (@count) a.started_at
    FROM rowpost.operation_log AS a WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE a.started_at < DATEADD(SECOND, -@retention_seconds, @now)
      AND (a.operation_state <> N'running' OR a.changed_at < DATEADD(SECOND, -30, @now))
    ORDER BY a.started_at
)
DELETE FROM old
OPTION (MAXDOP 1);

SELECT @@ROWCOUNT AS removed;
GO
