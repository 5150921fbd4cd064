SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[receive_messages:{queue_key}]
    @count int, -- how many at most, 1 to 500: below the threshold of lock escalation
    @anchor bigint = NULL -- only rows with a higher row version; NULL looks from the start
AS
/*
Removes and returns the oldest messages that nobody else holds.
Atomicity: one DELETE in the caller's transaction; a rollback puts the messages back in their places.
Locking:   steps over rows that others hold (READPAST) and never waits; locks only the rows that it returns.
Order:     the oldest by RowVersion; several receivers share the queue, so that across them the order is approximate.
           OUTPUT promises no order among the rows of a call: who needs it sorts them by row_version.
Expired messages are returned with expired = 1, for the receiver to drop.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED; -- READPAST is refused under SERIALIZABLE; reverts at the end

IF @count IS NULL OR @count NOT BETWEEN 1 AND 500
    THROW 51003, N'The number of messages to receive must be between 1 and 500.', 1;

-- A bound on the key, even where there is no anchor, makes FORCESEEK legal: it holds the plan on the row-version
-- index whatever the statistics say, and an anchor steps over ghost rows at the head of the index.
DECLARE @above bigint = ISNULL(@anchor, -9223372036854775808);

WITH oldest AS (
    SELECT TOP (@count) q.Id, q.RowVersion, q.Expires, q.Headers, q.Body
    FROM {queue_table} AS q WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE q.RowVersion > @above
    ORDER BY q.RowVersion
)
DELETE FROM oldest
OUTPUT
    deleted.Id AS id,
    deleted.RowVersion AS row_version,
    CAST(CASE WHEN deleted.Expires <= GETUTCDATE() THEN 1 ELSE 0 END AS bit) AS expired,
    deleted.Headers AS headers,
    deleted.Body AS body
OPTION (MAXDOP 1, OPTIMIZE FOR (@count = 1, @above = 0));
GO
