SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[lease_messages:{queue_key}]
    @count int, -- how many at most, 1 to 500
    @after_row_version bigint = NULL, -- only rows with a higher row version; NULL: from the start of the queue
    @owner nvarchar(400), -- host, process and slot, at most 200 characters; longer than the column, so that the check sees it
    @seconds int -- until the leases expire, by this server's clock, 1 to 86400
AS
/*
Moves the oldest messages that no other session has locked to the table of leases, and returns them with their tokens.
Atomicity: in the caller's transaction. As soon as that commits, the caller holds the messages without a transaction.
Locking:   skips rows that others lock (READPAST); locks only the rows that it moves.
Order:     the oldest first, as receive_messages; returns them in no order.
Expired messages are leased too; the receiver drops them.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 500
    THROW 51003, N'The number of messages to lease must be between 1 and 500.', 1;

IF @seconds IS NULL OR @seconds NOT BETWEEN 1 AND 86400
    THROW 51003, N'The messages cannot be leased: the lease must last between 1 and 86400 seconds.', 1;

IF LEN(CONCAT(@owner, N'.')) NOT BETWEEN 2 AND 201
    THROW 51034, N'The messages cannot be leased: their owner must have 1 to 200 characters.', 1;

DECLARE @above bigint = ISNULL(@after_row_version, -9223372036854775808);
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @taken TABLE (RowVersion bigint NOT NULL PRIMARY KEY, token uniqueidentifier NOT NULL);

INSERT INTO {leased_table} (token, Id, CorrelationId, ReplyToAddress, Expires, Headers, Body, RowVersion, owner, leased_at, due)
OUTPUT inserted.token, inserted.RowVersion INTO @taken (token, RowVersion)
SELECT
    NEWID(),
    o.Id,
    o.CorrelationId,
    o.ReplyToAddress,
    o.Expires,
    o.Headers,
    o.Body,
    o.RowVersion,
    @owner,
    @now,
    DATEADD(SECOND, @seconds, @now)
FROM
(
    SELECT TOP (@count) q.Id, q.CorrelationId, q.ReplyToAddress, q.Expires, q.Headers, q.Body, q.RowVersion
    FROM {queue_table} AS q WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE q.RowVersion > @above
    ORDER BY q.RowVersion
) AS o
OPTION (MAXDOP 1, OPTIMIZE FOR (@count = 1, @above = 0));

-- rule bounded_change: the rows that were inserted above, at most 500.
DELETE q
FROM {queue_table} AS q WITH (ROWLOCK, FORCESEEK)
INNER JOIN @taken AS t ON q.RowVersion = t.RowVersion
OPTION (MAXDOP 1);

SELECT
    l.Id AS id,
    l.RowVersion AS row_version,
    CAST(CASE WHEN l.Expires <= GETUTCDATE() THEN 1 ELSE 0 END AS bit) AS expired,
    l.Headers AS headers,
    l.Body AS body,
    l.token
FROM {leased_table} AS l
INNER JOIN @taken AS t ON l.token = t.token
OPTION (MAXDOP 1);
GO
