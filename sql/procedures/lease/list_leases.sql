SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[list_leases:{queue_key}]
    @count int -- 1 to 1000
AS
/*
Lists the leased messages of the queue without their bodies: who holds each of them, since when, until when, and how far it is.
Atomicity: reads only.
Locking:   skips rows that others lock, and nobody waits for it.
Order:     the oldest lease first.
Tokens are not shown: whoever knows one may end the lease.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 1000
    THROW 51003, N'The number of leases to list must be between 1 and 1000.', 1;

-- rule ordered_top: the table has a row for each handler that works.
SELECT TOP (@count)
    l.Id AS id,
    l.RowVersion AS row_version,
    l.owner,
    l.leased_at,
    l.due,
    l.progress_percent,
    l.progress_text,
    l.Headers AS headers,
    ISNULL(DATALENGTH(l.Body), 0) AS body_bytes
FROM {leased_table} AS l WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
ORDER BY l.leased_at
OPTION (MAXDOP 1);
GO
