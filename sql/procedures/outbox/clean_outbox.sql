SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.clean_outbox
    @retention_seconds int, -- only rows that are older
    @count int -- how many at most, 1 to 4000; call until fewer were removed
AS
/*
Deletes records of messages that were handled before the retention time, but none with operations that are not sent yet.
Atomicity: one DELETE in the caller's transaction, of fewer rows than the threshold of SQL Server's lock escalation.
Locking:   skips locked records, and takes no lock on operations. settle_operations locks a record that is older than an hour
           before its operations, so that with a retention time of an hour or more this never waits.
Order:     the oldest first, by the index on handled_at.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 4000
    THROW 51003, N'The number of rows to remove must be between 1 and 4000.', 1;

IF @retention_seconds IS NULL OR @retention_seconds < 0
    THROW 51003, N'The retention time must be 0 seconds or more.', 1;

WITH old AS (
    SELECT TOP (@count) o.handled_at
    FROM rowpost.outbox AS o WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE
        o.handled_at < DATEADD(SECOND, -@retention_seconds, SYSUTCDATETIME())
        AND NOT EXISTS (
            SELECT 1
            FROM rowpost.outbox_operations AS p WITH (FORCESEEK) -- a scan would wait for open business transactions
            WHERE p.endpoint = o.endpoint AND p.message_id = o.message_id
        )
    ORDER BY o.handled_at
)
DELETE FROM old
OPTION (MAXDOP 1);

SELECT @@ROWCOUNT AS removed;
GO
