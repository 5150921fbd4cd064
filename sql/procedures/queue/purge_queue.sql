SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[purge_queue:{queue_key}]
    @count int -- how many at most, 1 to 4000; call until fewer were purged
AS
/*
Removes the oldest messages that nobody has locked, returns how many, and records the last row version for streams.
Atomicity: one DELETE in the caller's transaction, with the record for streams.
Locking:   skips rows that receivers lock; waits only for another purge of the same queue. The limit of @count is below the
           5,000 locks from which on the server may lock the whole table.
Order:     by RowVersion.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 4000
    THROW 51003, N'The number of messages to purge must be between 1 and 4000.', 1;

DECLARE @above bigint = -9223372036854775808; -- the literal alone is numeric, and a comparison with it may read the whole queue
DECLARE @purged TABLE (row_version bigint NOT NULL);

WITH oldest AS (
    SELECT TOP (@count) q.RowVersion
    FROM {queue_table} AS q WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE q.RowVersion > @above
    ORDER BY q.RowVersion
)
DELETE FROM oldest
OUTPUT deleted.RowVersion INTO @purged (row_version)
OPTION (MAXDOP 1);

DECLARE @last bigint = (SELECT MAX(p.row_version) FROM @purged AS p);

-- a stream that has not read these messages yet must not treat the queue as empty
IF @last IS NOT NULL
BEGIN
    UPDATE p
    SET p.row_version = @last, p.purged_at = SYSUTCDATETIME()
    FROM rowpost.purge AS p WITH (UPDLOCK, HOLDLOCK)
    WHERE p.queue_key = N'{queue_key}';

    IF @@ROWCOUNT = 0
        INSERT INTO rowpost.purge (queue_key, row_version, purged_at)
        VALUES (N'{queue_key}', @last, SYSUTCDATETIME());
END;

SELECT COUNT(*) AS purged
FROM @purged AS p;
GO
