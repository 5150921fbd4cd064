SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[purge_expired:{queue_key}]
    @count int -- how many at most, 1 to 10000; call until fewer were purged
AS
/*
Removes expired messages that nobody has locked, and returns how many.
Atomicity: one DELETE in the caller's transaction.
Locking:   skips rows that receivers lock and never waits.
Order:     the longest expired first, by the index on Expires.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 10000
    THROW 51003, N'The number of messages to purge must be between 1 and 10000.', 1;

WITH expired AS (
    SELECT TOP (@count) q.RowVersion
    FROM {queue_table} AS q WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE q.Expires <= GETUTCDATE()
    ORDER BY q.Expires
)
DELETE FROM expired
OPTION (MAXDOP 1);

SELECT @@ROWCOUNT AS purged;
GO
