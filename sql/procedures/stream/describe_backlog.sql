SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[describe_backlog:{queue_key}]
    @above bigint, -- only messages with a higher row version
    @count int -- stop counting at this number, 1 to 1000000
AS
/*
Returns how many messages a stream has not read yet, up to a given number, and the headers of the oldest one.
Atomicity: reads only.
Locking:   skips rows that others lock and does not count them.
Order:     from the lowest row version.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 1000000
    THROW 51003, N'The number of messages to count must be between 1 and 1000000.', 1;

DECLARE @messages int = (
    SELECT COUNT(*)
    FROM
    (
        SELECT TOP (@count) q.RowVersion
        FROM {queue_table} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        WHERE q.RowVersion > @above
        ORDER BY q.RowVersion
    ) AS head
);

SELECT
    @messages AS messages,
    (
        SELECT TOP (1) q.Headers
        FROM {queue_table} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        WHERE q.RowVersion > @above
        ORDER BY q.RowVersion
    ) AS first_headers
OPTION (MAXDOP 1);
GO
