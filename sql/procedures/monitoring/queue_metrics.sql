SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[queue_metrics:{queue_key}]
    @after_row_version bigint = NULL -- search the oldest message, and count, only above this row version
WITH EXECUTE AS 'rowpost_internal'
AS
/*
Returns depth, age, counters and sizes of the queue from the server's metadata, its first rows and its first expired rows.
Up to 1,000 waiting messages are counted; the metadata gives only a depth above this.
Atomicity: reads only.
Locking:   skips rows that receivers lock: neither are they counted, nor is the oldest message one of them.
Rights:    runs as a user of its own, because the counters need a right to the database's state that a reader does not have.
Counters start when the server loads the table's metadata. Dead rows are unknown without a scan.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

DECLARE @table_id int = OBJECT_ID(N'{queue_table}', N'U');
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @above bigint = ISNULL(@after_row_version, -9223372036854775808);
DECLARE @head bigint;
DECLARE @expired int;
DECLARE @sent datetime2(3);
DECLARE @leased int;

SELECT TOP (1)
    @sent = TRY_CONVERT(
        datetime2(3),
        STUFF(LEFT(CASE WHEN ISJSON(q.Headers) = 1 THEN JSON_VALUE(q.Headers, N'$."NServiceBus.TimeSent"') END, 26), 20, 1, N'.'),
        121
    )
FROM {queue_table} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
WHERE q.RowVersion > @above
ORDER BY q.RowVersion;

SELECT @head = COUNT_BIG(*)
FROM
(
    SELECT TOP (1000) q.RowVersion
    FROM {queue_table} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE q.RowVersion > @above
    ORDER BY q.RowVersion
) AS head;

SELECT @expired = COUNT(*)
FROM
(
    SELECT TOP (1000) q.RowVersion
    FROM {queue_table} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE q.Expires <= GETUTCDATE()
    ORDER BY q.Expires
) AS head;

-- The registry says whether the queue has a table of leases.
IF EXISTS (SELECT 1 FROM rowpost.queue AS r WHERE r.queue_key = N'{queue_key}' AND r.lease = 1)
    SELECT @leased = COUNT(*)
    FROM {leased_table} AS l WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK);

WITH pages AS (
    SELECT
        SUM(CASE WHEN p.index_id IN (0, 1) THEN p.row_count ELSE 0 END) AS depth,
        SUM(CASE WHEN p.index_id IN (0, 1) THEN p.reserved_page_count ELSE 0 END) * 8192 AS table_bytes,
        SUM(CASE WHEN p.index_id IN (0, 1) THEN 0 ELSE p.reserved_page_count END) * 8192 AS index_bytes
    FROM sys.dm_db_partition_stats AS p
    WHERE p.object_id = @table_id
),
counters AS (
    SELECT SUM(o.leaf_insert_count) AS enqueued, SUM(o.leaf_delete_count + o.leaf_ghost_count) AS dequeued
    FROM sys.dm_db_index_operational_stats(DB_ID(), @table_id, NULL, NULL) AS o
    WHERE o.index_id IN (0, 1)
)
SELECT
    CASE WHEN @head < 1000 OR p.depth < @head THEN @head ELSE p.depth END AS depth,
    CASE WHEN @sent > @now THEN 0 ELSE DATEDIFF_BIG(MILLISECOND, @sent, @now) END AS oldest_age_ms,
    c.enqueued,
    c.dequeued,
    @expired AS expired,
    p.table_bytes,
    p.index_bytes,
    CAST(NULL AS bigint) AS dead_rows,
    @now AS measured_at,
    @leased AS leased
FROM pages AS p
CROSS JOIN counters AS c;
GO
