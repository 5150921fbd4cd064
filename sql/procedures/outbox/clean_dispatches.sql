SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.clean_dispatches
    @retention_seconds int, -- only rows that are older
    @count int -- how many at most, 1 to 4000; call until fewer were removed
AS
/*
Deletes dispatches that are older than the retention time. They remain only if a worker stopped before it deleted them.
Atomicity: one DELETE in the caller's transaction.
Locking:   skips locked rows. Waits only for a session that deletes the same dispatch.
Order:     the oldest first, by the index on dispatched_at.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 4000
    THROW 51003, N'The number of rows to remove must be between 1 and 4000.', 1;

IF @retention_seconds IS NULL OR @retention_seconds < 0
    THROW 51003, N'The retention time must be 0 seconds or more.', 1;

WITH old AS (
    SELECT TOP (@count) d.dispatched_at
    FROM rowpost.dispatch AS d WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE d.dispatched_at < DATEADD(SECOND, -@retention_seconds, SYSUTCDATETIME())
    ORDER BY d.dispatched_at
)
DELETE FROM old
OPTION (MAXDOP 1);

SELECT @@ROWCOUNT AS removed;
GO
