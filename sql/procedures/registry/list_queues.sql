SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_queues
AS
/*
Lists the registered queues with a depth that is estimated from the server's metadata, never from a scan.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by name.
*/
SET NOCOUNT, XACT_ABORT ON;

SELECT
    q.queue_name,
    q.queue_key,
    q.catalog_name,
    q.schema_name,
    q.table_name,
    q.kind,
    q.body_string,
    q.[clustered],
    q.delayed,
    q.lease,
    (
        SELECT SUM(p.rows)
        FROM sys.partitions AS p
        WHERE p.object_id = OBJECT_ID(CONCAT(QUOTENAME(q.schema_name), N'.', QUOTENAME(q.table_name)), N'U')
          AND p.index_id IN (0, 1)
          AND q.catalog_name IS NULL
    ) AS depth
FROM rowpost.queue AS q
ORDER BY q.queue_name;
GO
