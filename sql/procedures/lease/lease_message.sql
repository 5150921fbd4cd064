SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[lease_message:{queue_key}]
    @row_version bigint,
    @owner nvarchar(400), -- host, process and slot, at most 200 characters; longer than the column, so that the check sees it
    @seconds int -- until the lease expires, by this server's clock, 1 to 86400
AS
/*
Moves one message by its row version to the table of leases, and returns its token; nothing if it is gone or another session has locked it.
Atomicity: in the caller's transaction. As soon as that commits, the caller holds the message without a transaction.
Locking:   skips the row if another session has locked it.
Order:     at most one row.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @seconds IS NULL OR @seconds NOT BETWEEN 1 AND 86400
    THROW 51003, N'The message cannot be leased: the lease must last between 1 and 86400 seconds.', 1;

IF LEN(CONCAT(@owner, N'.')) NOT BETWEEN 2 AND 201
    THROW 51034, N'The message cannot be leased: its owner must have 1 to 200 characters.', 1;

DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @taken TABLE (token uniqueidentifier NOT NULL PRIMARY KEY);

INSERT INTO {leased_table} (token, Id, CorrelationId, ReplyToAddress, Expires, Headers, Body, RowVersion, owner, leased_at, due)
OUTPUT inserted.token INTO @taken (token)
SELECT
    NEWID(),
    q.Id,
    q.CorrelationId,
    q.ReplyToAddress,
    q.Expires,
    q.Headers,
    q.Body,
    q.RowVersion,
    @owner,
    @now,
    DATEADD(SECOND, @seconds, @now)
FROM {queue_table} AS q WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
WHERE q.RowVersion = @row_version
OPTION (MAXDOP 1);

IF @@ROWCOUNT > 0
    DELETE q
    FROM {queue_table} AS q WITH (ROWLOCK, FORCESEEK)
    WHERE q.RowVersion = @row_version
    OPTION (MAXDOP 1);

SELECT t.token
FROM @taken AS t;
GO
