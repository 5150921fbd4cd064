SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[purge_expired:{queue_key}]
    @count int -- how many at most, 1 to 4000; call until fewer were purged
AS
/*
Removes expired messages that nobody has locked, and returns how many.
Atomicity: one DELETE in the caller's transaction.
Locking:   skips rows that receivers lock. Rows are found by the index on Expires and then locked by RowVersion, in the order
           in which receivers lock, so that they and a purge do not wait for one another in a circle. The limit of @count is
           below the 5,000 locks from which on the server may lock the whole table.
Order:     the longest expired first, by the index on Expires.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 4000
    THROW 51003, N'The number of messages to purge must be between 1 and 4000.', 1;

-- A key, so that the DELETE needs no Distinct Sort. A table that was made elsewhere may have a number twice.
DECLARE @expired TABLE (row_version bigint NOT NULL PRIMARY KEY WITH (IGNORE_DUP_KEY = ON));

INSERT INTO @expired (row_version)
SELECT TOP (@count) q.RowVersion
FROM {queue_table} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
WHERE q.Expires <= GETUTCDATE()
ORDER BY q.Expires
OPTION (MAXDOP 1);

-- rule bounded_change: @expired has at most @count rows, 4,000.
DELETE q
FROM @expired AS e
INNER JOIN {queue_table} AS q WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    ON e.row_version = q.RowVersion
OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

SELECT @@ROWCOUNT AS purged;
GO
