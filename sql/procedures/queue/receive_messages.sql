SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[receive_messages:{queue_key}]
    @count int, -- how many at most, 1 to 500: below the threshold of lock escalation
    @after_row_version bigint = NULL -- only rows with a higher row version; NULL: from the start of the queue
AS
/*
Removes and returns the oldest messages that no other session has locked.
Atomicity: one DELETE in the caller's transaction; a rollback returns the messages to their places.
Locking:   skips rows that others lock (READPAST) and never waits; locks only the rows that it returns.
Order:     the oldest by RowVersion. Between several receivers of a queue the order is approximate. OUTPUT returns the
           rows of a call in no order: sort them by row_version if the order matters.
Expired messages are returned with expired = 1; the receiver drops them.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED; -- SERIALIZABLE does not allow READPAST; the level reverts when the procedure ends

IF @count IS NULL OR @count NOT BETWEEN 1 AND 500
    THROW 51003, N'The number of messages to receive must be between 1 and 500.', 1;

-- FORCESEEK needs a bound on the key, so there is one also without @after_row_version. It keeps the plan on the
-- row-version index, independent of the statistics. A given row version skips ghost records at the start of the index.
DECLARE @above bigint = ISNULL(@after_row_version, -9223372036854775808);

-- rule output_into: a received message would be written and read twice more; a trigger on a queue table is not supported.
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
