SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[receive_message:{queue_key}]
    @row_version bigint
AS
/*
Removes and returns one message by its row version; returns nothing if it is removed or another session has locked it.
Atomicity: one DELETE in the caller's transaction; a rollback returns the message to its place.
Locking:   skips the row if another session has locked it, and never waits.
Order:     at most one row.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

-- rule output_into: a received message would be written and read twice more; a trigger on a queue table is not supported.
DELETE q
OUTPUT
    deleted.Id AS id,
    deleted.RowVersion AS row_version,
    CAST(CASE WHEN deleted.Expires <= GETUTCDATE() THEN 1 ELSE 0 END AS bit) AS expired,
    deleted.Headers AS headers,
    deleted.Body AS body
FROM {queue_table} AS q WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
WHERE q.RowVersion = @row_version
OPTION (MAXDOP 1);
GO
