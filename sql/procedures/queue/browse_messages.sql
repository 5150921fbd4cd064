SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[browse_messages:{queue_key}]
    @count int, -- 1 to 1000
    @anchor bigint = NULL, -- only rows with a higher row version
    @max_body_bytes int = NULL -- cut bodies here; NULL leaves them whole
AS
/*
Reads messages without receiving them.
Atomicity: reads only.
Locking:   rows that receivers hold are stepped over; receivers are not held up.
Order:     by RowVersion.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 1000
    THROW 51003, N'The number of messages to browse must be between 1 and 1000.', 1;

DECLARE @above bigint = ISNULL(@anchor, -9223372036854775808);

SELECT TOP (@count)
    q.Id AS id,
    q.RowVersion AS row_version,
    CAST(CASE WHEN q.Expires <= GETUTCDATE() THEN 1 ELSE 0 END AS bit) AS expired,
    q.Expires AS expires,
    q.Headers AS headers,
    CASE WHEN @max_body_bytes IS NULL THEN q.Body ELSE SUBSTRING(q.Body, 1, @max_body_bytes) END AS body,
    ISNULL(DATALENGTH(q.Body), 0) AS body_bytes
FROM {queue_table} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
WHERE q.RowVersion > @above
ORDER BY q.RowVersion
OPTION (MAXDOP 1, OPTIMIZE FOR (@count = 50, @above = 0));
GO
