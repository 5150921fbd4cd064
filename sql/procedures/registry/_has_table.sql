SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER FUNCTION rowpost._has_table(@queue_key nvarchar(128)) RETURNS bit
WITH EXECUTE AS 'rowpost_internal'
AS
/*
Returns whether a registered queue has its table. Somebody may have dropped the table without unregistering the queue.
Atomicity: reads only.
Locking:   none that lasts.
The table of a queue in another database counts as there.
*/
BEGIN
    -- EXECUTE AS: a publisher may not see its subscribers' tables, and OBJECT_ID finds only what the caller may see.
    RETURN CASE WHEN EXISTS (
        SELECT 1
        FROM rowpost.queue AS q
        WHERE q.queue_key = @queue_key
          AND (q.catalog_name <> DB_NAME() OR OBJECT_ID(CONCAT(QUOTENAME(q.schema_name), N'.', QUOTENAME(q.table_name))) IS NOT NULL)
    ) THEN 1 ELSE 0 END;
END;
GO
