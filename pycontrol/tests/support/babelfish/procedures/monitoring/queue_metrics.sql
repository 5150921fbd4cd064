SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[queue_metrics:{queue_key}]
    @after_row_version bigint = NULL -- search the oldest message, and count, only above this row version
AS
/*
Says how the queue is: depth, age, counters and sizes, as far as they can be known.
Atomicity: reads only.
Locking:   none that lasts.
Babelfish: no figures of sizes and counters in its catalog: they are null, as a depth above 1,000 is.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @above bigint = ISNULL(@after_row_version, -9223372036854775808);
DECLARE @head bigint;
DECLARE @expired int;
DECLARE @headers nvarchar(max);
DECLARE @sent datetime2(3);
DECLARE @leased int;

SELECT TOP (1) @headers = q.Headers
FROM {queue_table} AS q
WHERE q.RowVersion > @above
ORDER BY q.RowVersion;

IF ISJSON(@headers) = 1
    SET @sent = TRY_CAST(STUFF(LEFT(JSON_VALUE(@headers, N'$."NServiceBus.TimeSent"'), 26), 20, 1, N'.') AS datetime2(3));

SELECT @head = COUNT_BIG(*)
FROM
(
    SELECT TOP (1000) q.RowVersion
    FROM {queue_table} AS q
    WHERE q.RowVersion > @above
    ORDER BY q.RowVersion
) AS head;

SELECT @expired = COUNT(*)
FROM
(
    SELECT TOP (1000) q.RowVersion
    FROM {queue_table} AS q
    WHERE q.Expires <= GETUTCDATE()
    ORDER BY q.Expires
) AS head;

IF EXISTS (SELECT 1 FROM rowpost.queue AS r WHERE r.queue_key = N'{queue_key}' AND r.lease = 1)
    SELECT @leased = COUNT(*) FROM {leased_table} AS l;

SELECT
    CASE WHEN @head < 1000 THEN @head END AS depth,
    CAST(CASE WHEN @sent > @now THEN 0 ELSE DATEDIFF_BIG(MILLISECOND, @sent, @now) END AS bigint) AS oldest_age_ms,
    CAST(NULL AS bigint) AS enqueued,
    CAST(NULL AS bigint) AS dequeued,
    @expired AS expired,
    CAST(NULL AS bigint) AS table_bytes,
    CAST(NULL AS bigint) AS index_bytes,
    CAST(NULL AS bigint) AS dead_rows,
    @now AS measured_at,
    @leased AS leased;
GO
