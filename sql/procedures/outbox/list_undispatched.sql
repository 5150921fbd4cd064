SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_undispatched
    @seconds int, -- handled longer ago than this
    @count int, -- how many at most, 1 to 1000
    @endpoints nvarchar(max) = NULL, -- JSON array: of these only; NULL: of all
    @after_ms bigint = NULL, -- with the next two: handled_ms, endpoint and id of the last message of the page before; NULL: from the oldest
    @after_endpoint nvarchar(400) = NULL,
    @after_message_id nvarchar(400) = NULL
AS
/*
Lists handled messages with operations that have not been sent for some time.
Atomicity: reads only.
Locking:   skips messages that another session has locked.
Order:     the oldest first, then by endpoint and id, so that a page begins after the last message of the one before.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 1000
    THROW 51003, N'The number of messages to list must be between 1 and 1000.', 1;

IF @seconds IS NULL OR @seconds < 0
    THROW 51003, N'The age must be 0 seconds or more.', 1;

DECLARE @after datetime2(3) = CASE
    WHEN @after_ms IS NOT NULL
        THEN DATEADD(MILLISECOND, CAST(@after_ms % 1000 AS int), DATEADD(SECOND, CAST(@after_ms / 1000 AS int), CAST('19700101' AS datetime2(3))))
END;

-- rule ordered_top: the few unsent operations are read and sorted, and not the records of the retention time
SELECT TOP (@count)
    p.endpoint,
    p.message_id,
    DATEDIFF_BIG(MILLISECOND, o.handled_at, SYSUTCDATETIME()) AS age_ms,
    DATEDIFF_BIG(MILLISECOND, '19700101', o.handled_at) AS handled_ms
FROM rowpost.outbox_operations AS p WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
INNER JOIN rowpost.outbox AS o ON p.endpoint = o.endpoint AND p.message_id = o.message_id
WHERE o.handled_at < DATEADD(SECOND, -@seconds, SYSUTCDATETIME())
  AND (@endpoints IS NULL OR p.endpoint IN (SELECT CAST(j.[value] AS nvarchar(400)) FROM OPENJSON(@endpoints) AS j))
  AND (
    @after IS NULL
    OR o.handled_at > @after
    OR (o.handled_at = @after AND p.endpoint > @after_endpoint)
    OR (o.handled_at = @after AND p.endpoint = @after_endpoint AND p.message_id > @after_message_id)
)
ORDER BY o.handled_at, p.endpoint, p.message_id
OPTION (FORCE ORDER); -- from the few unsent operations to their records, and not the other way
GO
