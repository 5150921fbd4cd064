SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[browse_delayed:{queue_key}]
    @count int, -- 1 to 1000
    @due_in_ms bigint = NULL -- only messages that are due so many milliseconds from now, or later; NULL: all
AS
/*
Reads delayed messages without their bodies, and without moving them, the next ones first.
Atomicity: reads only.
Locking:   skips rows that others lock; movers do not wait for it.
Order:     by due time.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 1000
    THROW 51003, N'The number of messages to browse must be between 1 and 1000.', 1;

IF @due_in_ms NOT BETWEEN -3155760000000 AND 3155760000000
    THROW 51010, N'The time from which on messages are browsed must be at most 100 years away.', 1;

DECLARE @from datetime = ISNULL(
    DATEADD(MILLISECOND, CONVERT(int, @due_in_ms % 86400000), DATEADD(DAY, CONVERT(int, @due_in_ms / 86400000), GETUTCDATE())), '17530101'
);

SELECT TOP (@count)
    CONCAT(CONVERT(char(23), d.Due, 121), N' ', d.RowVersion) AS delayed_key,
    CONVERT(datetime2(3), d.Due) AS due,
    d.Headers AS headers,
    ISNULL(DATALENGTH(d.Body), 0) AS body_bytes
FROM {delayed_table} AS d WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
WHERE d.Due >= @from
ORDER BY d.Due
OPTION (MAXDOP 1);
GO
