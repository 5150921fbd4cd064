SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[purge_queue:{queue_key}]
    @count int -- how many at most, 1 to 10000; call again until fewer were purged
AS
/*
Removes the oldest messages that nobody holds, and says how many.
Atomicity: one DELETE in the caller's transaction.
Locking:   steps over rows that receivers hold and never waits.
Order:     by RowVersion.
Babelfish: no DELETE from a CTE; READPAST is ignored, so that it waits for receivers.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 10000
    THROW 51003, N'The number of messages to purge must be between 1 and 10000.', 1;

DELETE q
FROM {queue_table} AS q
WHERE q.RowVersion IN (SELECT TOP (@count) o.RowVersion FROM {queue_table} AS o ORDER BY o.RowVersion);

SELECT @@ROWCOUNT AS purged;
GO
