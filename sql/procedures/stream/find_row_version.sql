SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[find_row_version:{queue_key}]
    @above bigint, -- only messages with a higher row version
    @upto bigint, -- and not above this one
    @count int, -- which of them, from 1
    @bytes bigint = NULL -- and not more headers and bodies up to it, unless it is the first
AS
/*
Returns the row version of the message at a place above another row version, so that a stream ends a batch there.
Row versions have gaps: a batch that ended so many row versions further might have no message. Bodies have sizes: a batch of so
many messages might have any number of bytes.
Atomicity: reads only.
Locking:   skips rows that others lock and does not count them.
Order:     from the lowest row version.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count < 1
    THROW 51003, N'The number of messages must be at least 1.', 1;

-- The first message that the bytes leave out. The frame of rows lets TOP end the scan there.
DECLARE @over bigint = (
    SELECT TOP (1) summed.RowVersion
    FROM
    (
        SELECT head.RowVersion, SUM(head.bytes) OVER (ORDER BY head.RowVersion ROWS UNBOUNDED PRECEDING) AS total
        FROM
        (
            SELECT TOP (@count)
                q.RowVersion,
                CAST(ISNULL(DATALENGTH(q.Headers), 0) AS bigint) + ISNULL(DATALENGTH(q.Body), 0) AS bytes
            FROM {queue_table} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
            WHERE q.RowVersion > @above
              AND q.RowVersion <= @upto
              AND @bytes IS NOT NULL
            ORDER BY q.RowVersion
        ) AS head
    ) AS summed
    WHERE summed.total > @bytes
    ORDER BY summed.RowVersion
);

IF @over IS NOT NULL
BEGIN
    SELECT ISNULL(MAX(earlier.RowVersion), @over) AS row_version
    FROM
    (
        SELECT TOP (1) q.RowVersion
        FROM {queue_table} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        WHERE q.RowVersion > @above
          AND q.RowVersion < @over
        ORDER BY q.RowVersion DESC
    ) AS earlier
    OPTION (MAXDOP 1);
    RETURN;
END;

SELECT CASE WHEN COUNT(*) = @count THEN MAX(head.RowVersion) END AS row_version
FROM
(
    SELECT TOP (@count) q.RowVersion
    FROM {queue_table} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE q.RowVersion > @above
      AND q.RowVersion <= @upto
    ORDER BY q.RowVersion
) AS head
OPTION (MAXDOP 1);
GO
