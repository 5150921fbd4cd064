SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[peek_queue:{queue_key}]
    @count int, -- stop counting at this number, 1 to 10000, so that the cost is independent of the queue's depth
    @after_row_version bigint = NULL -- count only rows with a higher row version
AS
/*
Returns about how many messages wait, up to a given number.
Atomicity: reads only.
Locking:   skips rows that receivers lock and does not count them. READCOMMITTEDLOCK is needed because with
           READ_COMMITTED_SNAPSHOT a plain read would count the old versions of these rows.
Order:     from the head of the queue.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 10000
    THROW 51003, N'The number of messages to count must be between 1 and 10000.', 1;

DECLARE @above bigint = ISNULL(@after_row_version, -9223372036854775808);

SELECT COUNT(*) AS waiting
FROM
(
    SELECT TOP (@count) q.RowVersion
    FROM {queue_table} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE q.RowVersion > @above
    ORDER BY q.RowVersion
) AS head
OPTION (MAXDOP 1, OPTIMIZE FOR (@count = 100, @above = 0));
GO
