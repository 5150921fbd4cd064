SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[read_delayed_bodies:{queue_key}]
    @delayed_keys nvarchar(max), -- JSON array, as browse_delayed returns them
    @max_body_bytes int = NULL -- return at most so many bytes of a body; NULL: the whole body
AS
/*
Reads the bodies of delayed messages without moving them.
Atomicity: reads only.
Locking:   skips rows that others lock; movers do not wait for it.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

SELECT
    j.[value] AS delayed_key,
    CASE WHEN @max_body_bytes IS NULL THEN d.Body ELSE SUBSTRING(d.Body, 1, @max_body_bytes) END AS body
FROM OPENJSON(@delayed_keys) AS j
INNER JOIN {delayed_table} AS d WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) -- the key has milliseconds, and the index is on Due
    ON d.Due >= DATEADD(MILLISECOND, -3, TRY_CONVERT(datetime, LEFT(j.[value], 23), 121))
   AND d.Due <= DATEADD(MILLISECOND, 3, TRY_CONVERT(datetime, LEFT(j.[value], 23), 121))
   AND d.RowVersion = TRY_CONVERT(bigint, SUBSTRING(j.[value], 25, 20))
OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
GO
