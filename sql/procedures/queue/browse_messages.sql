SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[browse_messages:{queue_key}]
    @count int, -- 1 to 1000
    @after_row_version bigint = NULL -- only rows with a higher row version
AS
/*
Reads messages without their bodies, and without receiving them.
Atomicity: reads only.
Locking:   skips rows that receivers lock; receivers do not wait for it.
Order:     by RowVersion.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 1000
    THROW 51003, N'The number of messages to browse must be between 1 and 1000.', 1;

DECLARE @above bigint = ISNULL(@after_row_version, -9223372036854775808);

SELECT TOP (@count)
    q.Id AS id,
    q.RowVersion AS row_version,
    CAST(CASE WHEN q.Expires <= GETUTCDATE() THEN 1 ELSE 0 END AS bit) AS expired,
    q.Expires AS expires,
    q.Headers AS headers,
    ISNULL(DATALENGTH(q.Body), 0) AS body_bytes
FROM {queue_table} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
WHERE q.RowVersion > @above
ORDER BY q.RowVersion
OPTION (MAXDOP 1, OPTIMIZE FOR (@count = 50, @above = 0));
GO
