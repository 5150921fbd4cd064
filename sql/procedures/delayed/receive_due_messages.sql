SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[receive_due_messages:{queue_key}]
    @count int -- how many at most, 1 to 500
AS
/*
Removes and returns due messages that have the header ForwardDestination, so that the mover forwards them.
Atomicity: one DELETE in the caller's transaction; a rollback returns the messages to their places.
Locking:   skips rows that others lock and never waits.
Order:     selects the next ones by due time, as move_due_messages; returns them in no order.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 500
    THROW 51003, N'The number of messages to receive must be between 1 and 500.', 1;

-- rule output_into: a received message would be written and read twice more; a trigger on a queue table is not supported.
WITH oldest AS (
    SELECT TOP (@count) d.Due, d.Headers, d.Body
    FROM {delayed_table} AS d WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE d.Due <= GETUTCDATE()
      AND d.Headers LIKE N'%"NServiceBus.SqlServer.ForwardDestination"%'
    ORDER BY d.Due
)
DELETE FROM oldest
OUTPUT deleted.Due AS due, deleted.Headers AS headers, deleted.Body AS body
OPTION (MAXDOP 1);
GO
