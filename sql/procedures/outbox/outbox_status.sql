SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.outbox_status
    @endpoints nvarchar(max) = NULL -- JSON array: whose unsent messages are counted; others count as foreign; NULL: all, none is foreign
WITH EXECUTE AS 'rowpost_internal'
AS
/*
Returns the size of the outbox from the server's metadata, and how many messages have unsent operations, up to 10000.
Those of other endpoints are counted separately, up to 10000 too.
Atomicity: reads only.
Locking:   none that lasts.
Rights:    runs as a user of its own, because the sizes need a right to the database's state that a reader does not have.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @undispatched int;
DECLARE @oldest datetime2(3);
DECLARE @foreign int;

SELECT @undispatched = COUNT(*), @oldest = MIN(head.handled_at)
FROM
(
    SELECT TOP (10000) o.handled_at
    FROM rowpost.outbox_operations AS p
    INNER JOIN rowpost.outbox AS o ON p.endpoint = o.endpoint AND p.message_id = o.message_id
    WHERE @endpoints IS NULL OR p.endpoint IN (SELECT CAST(j.[value] AS nvarchar(400)) FROM OPENJSON(@endpoints) AS j)
    ORDER BY o.handled_at
) AS head
OPTION (FORCE ORDER); -- from the few unsent operations to their records, and not the other way

SELECT @foreign = COUNT(*)
FROM
(
    SELECT TOP (10000) p.message_id
    FROM rowpost.outbox_operations AS p
    WHERE @endpoints IS NOT NULL AND p.endpoint NOT IN (SELECT CAST(j.[value] AS nvarchar(400)) FROM OPENJSON(@endpoints) AS j)
) AS others;

SELECT
    SUM(CASE WHEN s.index_id = 1 THEN s.row_count ELSE 0 END) AS records,
    (SELECT MIN(o.handled_at) FROM rowpost.outbox AS o) AS oldest_record_at,
    @undispatched AS undispatched,
    CASE WHEN @oldest > SYSUTCDATETIME() THEN 0 ELSE DATEDIFF_BIG(MILLISECOND, @oldest, SYSUTCDATETIME()) END AS oldest_undispatched_ms,
    SUM(s.reserved_page_count) * 8192 AS total_bytes,
    @foreign AS foreign_undispatched
FROM sys.dm_db_partition_stats AS s
WHERE s.object_id = OBJECT_ID(N'rowpost.outbox', N'U');
GO
