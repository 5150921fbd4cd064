SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[read_bodies:{queue_key}]
    @row_versions nvarchar(max), -- JSON array, as browse_messages and search_messages return them
    @max_body_bytes int = NULL -- return at most so many bytes of a body; NULL: the whole body
AS
/*
Reads the bodies of messages without receiving them.
Atomicity: reads only.
Locking:   skips rows that receivers lock; receivers do not wait for it.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

SELECT
    q.RowVersion AS row_version,
    CASE WHEN @max_body_bytes IS NULL THEN q.Body ELSE SUBSTRING(q.Body, 1, @max_body_bytes) END AS body
FROM OPENJSON(@row_versions) AS j
INNER JOIN {queue_table} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    ON q.RowVersion = TRY_CAST(j.[value] AS bigint)
OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
GO
