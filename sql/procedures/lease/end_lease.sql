SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[end_lease:{queue_key}]
    @token uniqueidentifier
AS
/*
Removes a leased message: it is handled, or is stored elsewhere in the same transaction.
Atomicity: one DELETE in the caller's transaction. A rollback leaves the message leased.
Locking:   the row of the lease, until the caller's transaction ends. It waits for whoever renews or returns the lease.
Order:     none.
A lease that has expired but that nobody has returned yet can be ended.
*/
SET NOCOUNT, XACT_ABORT ON;

DELETE l
FROM {leased_table} AS l WITH (ROWLOCK, FORCESEEK)
WHERE l.token = @token
OPTION (MAXDOP 1);

IF @@ROWCOUNT = 0
    THROW 51035, N'The lease is lost: it expired, and the message returned to its queue. Nothing of this attempt is committed.', 1;
GO
