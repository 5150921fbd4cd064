SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.clean_outbox
    @retention_seconds int, -- only what is older
    @count int -- how many at most, 1 to 4000; call again until fewer were removed
AS
/*
Forgets messages that were handled longer ago than the retention time, never one whose operations have not left.
Atomicity: one DELETE in the caller's transaction, of fewer rows than make SQL Server lock the whole table.
Locking:   steps over rows that somebody holds and never waits.
Order:     the oldest first, through the index on handled_at.
Babelfish: no DELETE from a CTE; READPAST is ignored, so that it waits.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 4000
    THROW 51003, N'The number of rows to remove must be between 1 and 4000.', 1;

IF @retention_seconds IS NULL OR @retention_seconds < 0
    THROW 51003, N'A retention time cannot be negative.', 1;

DELETE gone
FROM rowpost.outbox AS gone
INNER JOIN
(
    SELECT TOP (@count) o.endpoint, o.message_id
    FROM rowpost.outbox AS o
    WHERE
        o.handled_at < DATEADD(SECOND, -@retention_seconds, SYSUTCDATETIME())
        AND NOT EXISTS (
            SELECT 1
            FROM rowpost.outbox_operations AS p
            WHERE p.endpoint = o.endpoint AND p.message_id = o.message_id
        )
    ORDER BY o.handled_at
) AS old ON gone.endpoint = old.endpoint AND gone.message_id = old.message_id;

SELECT @@ROWCOUNT AS removed;
GO
