SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[return_lease:{queue_key}]
    @token uniqueidentifier
WITH EXECUTE AS 'rowpost_internal'
AS
/*
Moves a leased message back to its place in the queue.
Atomicity: in the caller's transaction. A rollback leaves the message leased.
Locking:   the row of the lease, until the caller's transaction ends. It waits for whoever renews or returns the lease.
Order:     the message gets its row version back.
Rights:    runs as a user of its own, because a row version is written to the queue's table.
*/
SET NOCOUNT, XACT_ABORT ON;

IF NOT EXISTS (SELECT 1 FROM {leased_table} AS l WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) WHERE l.token = @token)
    THROW 51035, N'The lease is lost: it expired, and the message returned to its queue. Nothing of this attempt is committed.', 1;

SET IDENTITY_INSERT {queue_table} ON;

-- The deployment makes it without the comment signs, if the table has Recoverable without a default.
INSERT INTO {queue_table} (Id, CorrelationId, ReplyToAddress, Expires, Headers, Body, RowVersion /*, Recoverable */)
SELECT l.Id, l.CorrelationId, l.ReplyToAddress, l.Expires, l.Headers, l.Body, l.RowVersion /*, 1 */
FROM {leased_table} AS l WITH (FORCESEEK)
WHERE l.token = @token
OPTION (MAXDOP 1);

SET IDENTITY_INSERT {queue_table} OFF;

DELETE l
FROM {leased_table} AS l WITH (ROWLOCK, FORCESEEK)
WHERE l.token = @token
OPTION (MAXDOP 1);
GO
