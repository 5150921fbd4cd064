SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.clean_dispatches
    @retention_seconds int, -- only what is older
    @count int -- how many at most, 1 to 4000; call again until fewer were removed
AS
/*
Forgets dispatches that are older than the retention time: those that nobody was left to forget at once.
Atomicity: one DELETE in the caller's transaction.
Locking:   steps over rows that somebody holds and never waits.
Order:     the oldest first, through the index on dispatched_at.
Babelfish: no DELETE from a CTE; READPAST is ignored, so that it waits.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 4000
    THROW 51003, N'The number of rows to remove must be between 1 and 4000.', 1;

IF @retention_seconds IS NULL OR @retention_seconds < 0
    THROW 51003, N'A retention time cannot be negative.', 1;

DELETE gone
FROM rowpost.dispatch AS gone
INNER JOIN
(
    SELECT TOP (@count) d.endpoint, d.message_id
    FROM rowpost.dispatch AS d
    WHERE d.dispatched_at < DATEADD(SECOND, -@retention_seconds, SYSUTCDATETIME())
    ORDER BY d.dispatched_at
) AS old ON gone.endpoint = old.endpoint AND gone.message_id = old.message_id;

SELECT @@ROWCOUNT AS removed;
GO
