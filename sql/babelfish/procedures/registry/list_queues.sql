SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_queues
AS
/*
Lists the registered queues with a depth taken from the server's metadata, never from a scan.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by name.
Babelfish: sys.partitions has no row counts, so that depth is unknown.
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
    CAST(NULL AS bigint) AS depth
FROM rowpost.queue AS q
ORDER BY q.queue_name;
GO
