SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[return_expired:{queue_key}]
    @count int, -- how many at most, 1 to 500
    @row_version bigint = NULL, -- with @owner: this message, although its lease is not due
    @owner nvarchar(400) = NULL -- with @row_version: how the owner of the lease begins, because its process has ended
WITH EXECUTE AS 'rowpost_internal'
AS
/*
Moves messages whose leases have expired, or whose owner has ended, back to their places in the queue, and returns them.
Of a process that has ended, it moves a message by its row version, although its lease is not due.
Atomicity: in the caller's transaction. A rollback leaves the messages leased.
Locking:   skips rows that others lock (READPAST); locks only the rows that it moves.
Order:     the longest expired first; returns them in no order. The messages get their row versions back.
Rights:    runs as a user of its own, because row versions are written to the queue's table.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 500
    THROW 51003, N'The number of leases to return must be between 1 and 500.', 1;

DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @back TABLE (token uniqueidentifier NOT NULL PRIMARY KEY);

-- rule ordered_top: the table has a row for each handler that works.
IF @row_version IS NULL
    INSERT INTO @back (token)
    SELECT TOP (@count) l.token
    FROM {leased_table} AS l WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE l.due <= @now
    ORDER BY l.due
    OPTION (MAXDOP 1);
ELSE
    INSERT INTO @back (token)
    SELECT l.token
    FROM {leased_table} AS l WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE l.RowVersion = @row_version
      AND LEFT(l.owner, LEN(CONCAT(@owner, N'.')) - 1) = @owner
    OPTION (MAXDOP 1);

IF EXISTS (SELECT 1 FROM @back AS b)
BEGIN
    SET IDENTITY_INSERT {queue_table} ON;

    -- The deployment makes it without the comment signs, if the table has Recoverable without a default.
    INSERT INTO {queue_table} (Id, CorrelationId, ReplyToAddress, Expires, Headers, Body, RowVersion /*, Recoverable */)
    SELECT l.Id, l.CorrelationId, l.ReplyToAddress, l.Expires, l.Headers, l.Body, l.RowVersion /*, 1 */
    FROM {leased_table} AS l
    INNER JOIN @back AS b ON l.token = b.token
    OPTION (MAXDOP 1);

    SET IDENTITY_INSERT {queue_table} OFF;
END;

-- rule bounded_change: the rows that were inserted above, at most 500.
-- rule output_into: a returned message would be written and read twice more; a trigger on a table of leases is not supported.
DELETE q
OUTPUT
    deleted.Id AS id,
    deleted.RowVersion AS row_version,
    CAST(CASE WHEN deleted.Expires <= GETUTCDATE() THEN 1 ELSE 0 END AS bit) AS expired,
    deleted.Headers AS headers,
    deleted.Body AS body,
    deleted.owner
FROM {leased_table} AS q WITH (ROWLOCK)
INNER JOIN @back AS b ON q.token = b.token
OPTION (MAXDOP 1);
GO
