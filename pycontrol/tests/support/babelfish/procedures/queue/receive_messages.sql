SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[receive_messages:{queue_key}]
    @count int, -- how many at most, 1 to 500: below the threshold of lock escalation
    @after_row_version bigint = NULL -- only rows with a higher row version; NULL: from the start of the queue
AS
/*
Removes and returns the oldest messages that no other session has locked.
Atomicity: one DELETE in the caller's transaction; a rollback returns the messages to their places.
Locking:   skips rows that others lock (READPAST) and never waits; locks only the rows that it returns.
Order:     by RowVersion; several receivers share the queue, so that across them the order is approximate.
Expired messages are returned with expired = 1; the receiver drops them.
Babelfish: no DELETE from a CTE, no CASE over deleted in OUTPUT; READPAST is ignored, so that a receiver waits for the
holder of the oldest row and then looks again. (Not with a table variable: its lock lasts until the transaction ends.)
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED; -- SERIALIZABLE does not allow READPAST; the level reverts when the procedure ends

IF @count IS NULL OR @count NOT BETWEEN 1 AND 500
    THROW 51003, N'The number of messages to receive must be between 1 and 500.', 1;

DECLARE @above bigint = ISNULL(@after_row_version, -9223372036854775808);
DECLARE @again bit = 1;

WHILE @again = 1
BEGIN
    -- changes nothing: locks the rows, or waits until their holder has taken them
    UPDATE q
    SET q.Id = q.Id
    FROM {queue_table} AS q
    WHERE q.RowVersion IN
    (
        SELECT TOP (@count) o.RowVersion
        FROM {queue_table} AS o
        WHERE o.RowVersion > @above
        ORDER BY o.RowVersion
    );

    IF @@ROWCOUNT > 0 OR NOT EXISTS (SELECT q.Id FROM {queue_table} AS q WHERE q.RowVersion > @above)
        SET @again = 0;
END;

DELETE q
OUTPUT
    deleted.Id AS id,
    deleted.RowVersion AS row_version,
    CAST(CASE WHEN q.Expires <= GETUTCDATE() THEN 1 ELSE 0 END AS bit) AS expired,
    deleted.Headers AS headers,
    deleted.Body AS body
FROM {queue_table} AS q
WHERE q.RowVersion IN
(
    SELECT TOP (@count) o.RowVersion
    FROM {queue_table} AS o
    WHERE o.RowVersion > @above
    ORDER BY o.RowVersion
);
GO
