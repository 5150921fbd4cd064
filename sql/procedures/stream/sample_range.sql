SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[sample_range:{queue_key}]
    @above bigint, -- only rows with a higher row version
    @upto bigint -- and not above this one
AS
/*
Returns row version and size of some messages of a range, so that a reader can divide it into parts with about the same work.
The messages of some pages are measured, so that the duration does not depend on the number of messages. A range that is a
small part of the table may have none.
Atomicity: reads only.
Locking:   skips rows that others lock and does not return them.
Order:     none.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

DECLARE @rows bigint = (SELECT SUM(p.[rows]) FROM sys.partitions AS p WHERE p.[object_id] = OBJECT_ID(N'{queue_table}') AND p.index_id IN (0, 1));

WITH sampled AS (
    SELECT
        q.RowVersion,
        CAST(ISNULL(DATALENGTH(q.Headers), 0) AS bigint) + ISNULL(DATALENGTH(q.Body), 0) AS bytes,
        COUNT(*) OVER () AS measured
    FROM {queue_table} AS q TABLESAMPLE SYSTEM (2000 ROWS) WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
)
SELECT
    s.RowVersion AS row_version,
    s.bytes,
    CAST(CASE WHEN @rows > s.measured THEN @rows / s.measured ELSE 1 END AS bigint) AS messages
FROM sampled AS s
WHERE s.RowVersion > @above
  AND s.RowVersion <= @upto
OPTION (MAXDOP 1);
GO
