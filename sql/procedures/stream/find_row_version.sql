SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[find_row_version:{queue_key}]
    @above bigint, -- only messages with a higher row version
    @upto bigint, -- and not above this one
    @count int -- which of them, from 1
AS
/*
Returns the row version of the message at a place above another row version, so that a stream ends a batch there.
Row versions have gaps: a batch that ended so many row versions further might have no message.
Atomicity: reads only.
Locking:   skips rows that others lock and does not count them.
Order:     from the lowest row version.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count < 1
    THROW 51003, N'The number of messages must be at least 1.', 1;

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
