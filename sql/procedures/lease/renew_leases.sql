SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[renew_leases:{queue_key}]
    @leases nvarchar(max), -- JSON array of objects with a token, and optionally percent (0 to 100) and text, of which 200 characters are kept
    @seconds int -- from now, by this server's clock, 1 to 86400
AS
/*
Renews leases, records the progress of their handlers, and returns the tokens of those that still exist.
Atomicity: one UPDATE in the caller's transaction.
Locking:   skips rows that others lock and never waits: such a lease is ending, and its token is not returned.
Progress that is not given stays as it is.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @seconds IS NULL OR @seconds NOT BETWEEN 1 AND 86400
    THROW 51003, N'The leases cannot be renewed: they must last between 1 and 86400 seconds.', 1;

IF ISNULL(ISJSON(@leases), 0) = 0 OR LEFT(LTRIM(@leases), 1) <> N'['
    THROW 51033, N'The leases to renew must be a JSON array of objects with a token.', 1;

DECLARE @due datetime2(3) = DATEADD(SECOND, @seconds, SYSUTCDATETIME());
DECLARE @renewed TABLE
(
    token uniqueidentifier NOT NULL PRIMARY KEY,
    progress_percent int NULL,
    progress_text nvarchar(400) NULL
);

INSERT INTO @renewed (token, progress_percent, progress_text)
SELECT
    r.token,
    MAX(CASE WHEN r.progress_percent BETWEEN 0 AND 100 THEN r.progress_percent END),
    MAX(LEFT(r.progress_text, 200))
FROM
(
    SELECT
        TRY_CONVERT(uniqueidentifier, JSON_VALUE(j.value, N'$.token')) AS token,
        TRY_CONVERT(int, JSON_VALUE(j.value, N'$.percent')) AS progress_percent,
        JSON_VALUE(j.value, N'$.text') AS progress_text
    FROM OPENJSON(@leases) AS j
    WHERE j.[type] = 5 -- an object
) AS r
WHERE r.token IS NOT NULL
GROUP BY r.token;

-- rule bounded_change: the leases of one process, a row for each handler that works.
-- rule output_into: the tokens of this one statement; a trigger on a table of leases is not supported.
UPDATE l
SET l.due = @due,
    l.progress_percent = ISNULL(r.progress_percent, l.progress_percent),
    l.progress_text = ISNULL(r.progress_text, l.progress_text)
OUTPUT inserted.token
FROM {leased_table} AS l WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
INNER JOIN @renewed AS r ON l.token = r.token
OPTION (MAXDOP 1);
GO
