SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[watch_queue:{queue_key}]
    @count int, -- stop counting at this number, 1 to 10000, so that the cost is independent of the queue's depth
    @wake_up_ttl_ms int = NULL -- ignored: senders cannot notify on SQL Server
AS
/*
Returns about how many messages wait and when the next delayed one is due.
Atomicity: reads only.
Locking:   skips rows that others lock, as peek_queue.
Order:     from the head of the queue, and of the index on due times.
The registry says whether the queue has a delayed table. OBJECT_ID would hide it from a login without rights on it.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 10000
    THROW 51003, N'The number of messages to count must be between 1 and 10000.', 1;

DECLARE @now datetime = GETUTCDATE();
DECLARE @due datetime;
DECLARE @above bigint = -9223372036854775808; -- the literal alone is numeric, and a comparison with it may read the whole queue

IF EXISTS (SELECT 1 FROM rowpost.queue AS r WHERE r.queue_key = N'{queue_key}' AND r.delayed = 1)
    SELECT @due = MIN(d.Due)
    FROM {delayed_table} AS d WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
    OPTION (MAXDOP 1);

SELECT
    COUNT(*) AS waiting,
    CASE WHEN @due > @now THEN DATEDIFF_BIG(MILLISECOND, @now, @due) WHEN @due <= @now THEN 0 END AS next_due_ms
FROM
(
    SELECT TOP (@count) q.RowVersion
    FROM {queue_table} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE q.RowVersion > @above
    ORDER BY q.RowVersion
) AS head
OPTION (MAXDOP 1, OPTIMIZE FOR (@count = 100, @above = 0));
GO
