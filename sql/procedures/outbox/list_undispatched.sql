SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_undispatched
    @seconds int, -- handled longer ago than this
    @count int -- how many at most, 1 to 1000
AS
/*
Lists handled messages with operations that have not been sent for some time.
Atomicity: reads only.
Locking:   skips messages that another session has locked.
Order:     the oldest first.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 1000
    THROW 51003, N'The number of messages to list must be between 1 and 1000.', 1;

IF @seconds IS NULL OR @seconds < 0
    THROW 51003, N'The age must be 0 seconds or more.', 1;

SELECT TOP (@count) p.endpoint, p.message_id, DATEDIFF_BIG(MILLISECOND, o.handled_at, SYSUTCDATETIME()) AS age_ms
FROM rowpost.outbox_operations AS p WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
INNER JOIN rowpost.outbox AS o ON p.endpoint = o.endpoint AND p.message_id = o.message_id
WHERE o.handled_at < DATEADD(SECOND, -@seconds, SYSUTCDATETIME())
ORDER BY o.handled_at
OPTION (FORCE ORDER); -- from the few unsent operations to their records, and not the other way
GO
