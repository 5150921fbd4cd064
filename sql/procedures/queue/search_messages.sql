SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[search_messages:{queue_key}]
    @text nvarchar(400), -- part of the headers as they are stored, 1 to 200 characters; longer than allowed, so that the check sees it
    @count int, -- how many messages to look through, 1 to 100000
    @id uniqueidentifier = NULL, -- the row's id: finds this message whatever its headers are
    @below_row_version bigint = NULL -- only rows with a lower row version; NULL: from the newest one on
AS
/*
Finds messages by a part of their headers, or by the row's id. It looks through a bounded number of messages, and says at which row version it stopped.
Atomicity: reads only.
Locking:   skips rows that receivers lock; receivers do not wait for it.
Order:     by RowVersion, the newest first.
If it finds nothing, the only row has no values but looked_to. It returns up to 1000 messages.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 100000
    THROW 51003, N'The number of messages to look through must be between 1 and 100000.', 1;

IF LEN(CONCAT(@text, N'.')) NOT BETWEEN 2 AND 201
    THROW 51003, N'The text to search for must have 1 to 200 characters.', 1;

DECLARE @below bigint = ISNULL(@below_row_version, 9223372036854775807);
DECLARE @lowest bigint;
DECLARE @looked int;

SELECT @lowest = MIN(s.RowVersion), @looked = COUNT(*)
FROM
(
    SELECT TOP (@count) q.RowVersion
    FROM {queue_table} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE q.RowVersion < @below
    ORDER BY q.RowVersion DESC
) AS s
OPTION (MAXDOP 1);

WITH found AS (
    SELECT TOP (1000) q.Id, q.RowVersion, q.Expires, q.Headers, DATALENGTH(q.Body) AS body_bytes
    FROM {queue_table} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE q.RowVersion >= @lowest
      AND q.RowVersion < @below
      AND (q.Id = @id OR CHARINDEX(@text COLLATE Latin1_General_100_BIN2, q.Headers COLLATE Latin1_General_100_BIN2) > 0)
    ORDER BY q.RowVersion DESC
)
SELECT
    l.looked_to,
    f.Id AS id,
    f.RowVersion AS row_version,
    CAST(CASE WHEN f.Expires <= GETUTCDATE() THEN 1 WHEN f.RowVersion IS NOT NULL THEN 0 END AS bit) AS expired,
    f.Expires AS expires,
    f.Headers AS headers,
    CASE WHEN f.RowVersion IS NOT NULL THEN ISNULL(f.body_bytes, 0) END AS body_bytes
FROM (SELECT CASE WHEN @looked = @count THEN @lowest END AS looked_to) AS l
LEFT OUTER JOIN found AS f
    ON f.RowVersion < @below
ORDER BY f.RowVersion DESC
OPTION (MAXDOP 1);
GO
