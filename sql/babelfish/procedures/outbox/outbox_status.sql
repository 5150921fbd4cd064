SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.outbox_status
AS
/*
Says how full the outbox is, out of the server's metadata; and what has not left, counted up to 10000.
Atomicity: reads only.
Locking:   none that lasts.
Rights:    runs as the owner, for the figures want a right to the database's state that a reader does not have.
Babelfish: no figures of sizes in its catalog: they are null, and records are counted.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @undispatched int;
DECLARE @oldest datetime2(3);

SELECT @undispatched = COUNT(*), @oldest = MIN(head.handled_at)
FROM
(
    SELECT TOP (10000) o.handled_at
    FROM rowpost.outbox_operations AS p
    INNER JOIN rowpost.outbox AS o ON p.endpoint = o.endpoint AND p.message_id = o.message_id
    ORDER BY o.handled_at
) AS head;

SELECT
    COUNT_BIG(*) AS records,
    MIN(o.handled_at) AS oldest_record_at,
    @undispatched AS undispatched,
    CAST(CASE WHEN @oldest > SYSUTCDATETIME() THEN 0 ELSE DATEDIFF_BIG(MILLISECOND, @oldest, SYSUTCDATETIME()) END AS bigint) AS oldest_undispatched_ms,
    CAST(NULL AS bigint) AS total_bytes
FROM rowpost.outbox AS o;
GO
