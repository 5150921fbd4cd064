SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[read_range:{queue_key}]
    @above bigint, -- only rows with a higher row version
    @upto bigint, -- and not above this one
    @with_headers bit = NULL, -- NULL: yes; without: ''
    @with_body bit = NULL, -- NULL: yes; without: NULL
    @ids nvarchar(max) = NULL, -- JSON array: only these
    @headers_contain nvarchar(max) = NULL -- only messages whose headers contain this text
AS
/*
Reads a range of messages without removing them; the number is not limited.
Atomicity: reads only.
Locking:   none with READ_COMMITTED_SNAPSHOT; otherwise it waits for receivers of these rows.
Order:     none.
Recoverable is 1, because a table that was made elsewhere may not have the column.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

SELECT
    q.Id AS id,
    q.CorrelationId AS correlation_id,
    q.ReplyToAddress AS reply_to_address,
    CAST(1 AS bit) AS recoverable,
    q.Expires AS expires,
    CASE WHEN ISNULL(@with_headers, 1) = 1 THEN q.Headers ELSE N'' END AS headers,
    CASE WHEN ISNULL(@with_body, 1) = 1 THEN q.Body END AS body,
    q.RowVersion AS row_version
FROM {queue_table} AS q WITH (FORCESEEK)
WHERE q.RowVersion > @above
  AND q.RowVersion <= @upto
  AND (@ids IS NULL OR q.Id IN (SELECT TRY_CAST(j.[value] AS uniqueidentifier) FROM OPENJSON(@ids) AS j))
  AND (@headers_contain IS NULL OR CHARINDEX(@headers_contain COLLATE Latin1_General_100_BIN2, q.Headers COLLATE Latin1_General_100_BIN2) > 0)
OPTION (MAXDOP 1);
GO
