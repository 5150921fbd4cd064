SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[watch_queue:{queue_key}]
    @count int, -- stop counting at this number, 1 to 10000, so that the cost is independent of the queue's depth
    @wake_up_ttl_ms int = NULL, -- ignored: senders cannot notify on SQL Server
    @supervisor_id uniqueidentifier = NULL -- who asks, for its part of a limit that supervisors share; NULL: the whole limit
AS
/*
Returns about how many messages wait, when the next delayed one is due, and what operators have set for the queue.
Atomicity: reads only.
Locking:   skips rows that others lock, as peek_queue.
Order:     from the head of the queue, and of the index on due times.
The registry says whether the queue has a delayed table. OBJECT_ID would hide it from a login without rights on it.
A limit that supervisors share is divided among those that reported within 30 seconds, and the asking one. A part may be 0.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 10000
    THROW 51003, N'The number of messages to count must be between 1 and 10000.', 1;

DECLARE @now datetime = GETUTCDATE();
DECLARE @due datetime;
DECLARE @above bigint = -9223372036854775808; -- the literal alone is numeric, and a comparison with it may read the whole queue

DECLARE @delayed bit;
DECLARE @is_paused bit;
DECLARE @limit int;
DECLARE @shared bit;
DECLARE @reason nvarchar(400);
DECLARE @changed_by nvarchar(128);

SELECT
    @delayed = r.delayed,
    @is_paused = ISNULL(c.is_paused, 0),
    @limit = c.worker_limit,
    @shared = c.shared,
    @reason = c.reason,
    @changed_by = c.changed_by
FROM rowpost.queue AS r
LEFT OUTER JOIN rowpost.queue_control AS c ON r.queue_key = c.queue_key
WHERE r.queue_key = N'{queue_key}';

-- Two reads, so that this session never holds a lock on one table while it waits for the other: report_supervisor changes both.
DECLARE @others TABLE (supervisor_id uniqueidentifier NOT NULL PRIMARY KEY);

IF @shared = 1 AND @supervisor_id IS NOT NULL
BEGIN
    INSERT INTO @others (supervisor_id)
    SELECT q.supervisor_id
    FROM rowpost.supervised_queue AS q
    WHERE q.queue_key = N'{queue_key}'
      AND q.supervisor_id <> @supervisor_id;

    SELECT @limit = @limit / (COUNT(*) + 1) + CASE WHEN COUNT(CASE WHEN o.supervisor_id < @supervisor_id THEN 1 END) < @limit % (COUNT(*) + 1) THEN 1 ELSE 0 END
    FROM @others AS o
    INNER JOIN rowpost.supervisor AS s ON o.supervisor_id = s.supervisor_id
    WHERE s.seen_at > DATEADD(SECOND, -30, SYSUTCDATETIME());
END;

IF @delayed = 1
    SELECT @due = MIN(d.Due)
    FROM {delayed_table} AS d WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
    OPTION (MAXDOP 1);

SELECT
    COUNT(*) AS waiting,
    CASE WHEN @due > @now THEN DATEDIFF_BIG(MILLISECOND, @now, @due) WHEN @due <= @now THEN 0 END AS next_due_ms,
    ISNULL(@is_paused, 0) AS is_paused,
    @limit AS worker_limit,
    @reason AS reason,
    @changed_by AS changed_by
FROM
(
    SELECT TOP (@count) q.RowVersion
    FROM {queue_table} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE q.RowVersion > @above
    ORDER BY q.RowVersion
) AS head
OPTION (MAXDOP 1, OPTIMIZE FOR (@count = 100, @above = 0));
GO
