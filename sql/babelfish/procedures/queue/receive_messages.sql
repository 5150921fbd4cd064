SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[receive_messages:{queue_key}]
    @count int, -- how many at most, 1 to 500: below the threshold of lock escalation
    @anchor bigint = NULL -- only rows with a higher row version; NULL looks from the start
AS
/*
Removes and returns the oldest messages that nobody else holds.
Atomicity: one DELETE in the caller's transaction; a rollback puts the messages back in their places.
Locking:   steps over rows that others hold (READPAST) and never waits; locks only the rows that it returns.
Order:     by RowVersion; several receivers share the queue, so that across them the order is approximate.
Expired messages are returned with expired = 1, for the receiver to drop.
Babelfish: no DELETE from a CTE, no CASE over deleted in OUTPUT; READPAST is ignored, so that a receiver waits for the
holder of the oldest row and then looks again.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED; -- READPAST is refused under SERIALIZABLE; reverts at the end

IF @count IS NULL OR @count NOT BETWEEN 1 AND 500
    THROW 51003, N'The number of messages to receive must be between 1 and 500.', 1;

DECLARE @above bigint = ISNULL(@anchor, -9223372036854775808);
DECLARE @received TABLE
(
    id uniqueidentifier NOT NULL,
    row_version bigint NOT NULL,
    expires datetime NULL,
    headers nvarchar(max) NOT NULL,
    body varbinary(max) NULL
);
DECLARE @again bit = 1;

WHILE @again = 1
BEGIN
    DELETE q
    OUTPUT deleted.Id, deleted.RowVersion, deleted.Expires, deleted.Headers, deleted.Body
    INTO @received (id, row_version, expires, headers, body)
    FROM {queue_table} AS q
    WHERE q.RowVersion IN
    (
        SELECT TOP (@count) o.RowVersion
        FROM {queue_table} AS o
        WHERE o.RowVersion > @above
        ORDER BY o.RowVersion
    );

    SET @again = 0;

    IF NOT EXISTS (SELECT r.id FROM @received AS r)
        SELECT TOP (1) @again = 1
        FROM {queue_table} AS q
        WHERE q.RowVersion > @above;
END;

SELECT
    r.id,
    r.row_version,
    CAST(CASE WHEN r.expires <= GETUTCDATE() THEN 1 ELSE 0 END AS bit) AS expired,
    r.headers,
    r.body
FROM @received AS r
ORDER BY r.row_version;
GO
