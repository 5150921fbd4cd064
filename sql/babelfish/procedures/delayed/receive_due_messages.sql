SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[receive_due_messages:{queue_key}]
    @count int -- how many at most, 1 to 500
AS
/*
Removes and returns due messages of NServiceBus endpoints that bear a ForwardDestination, for the mover to forward.
Atomicity: one DELETE in the caller's transaction; a rollback puts the messages back in their places.
Locking:   steps over rows that others hold and never waits.
Order:     by due time, which database.call restores.
Babelfish: no DELETE from a CTE; READPAST is ignored, so that it waits for rows that others hold.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 500
    THROW 51003, N'The number of messages to receive must be between 1 and 500.', 1;

DELETE d
OUTPUT deleted.Due AS due, deleted.Headers AS headers, deleted.Body AS body
FROM {delayed_table} AS d
WHERE d.RowVersion IN
(
    SELECT TOP (@count) o.RowVersion
    FROM {delayed_table} AS o
    WHERE o.Due <= GETUTCDATE()
      AND o.Headers LIKE N'%"NServiceBus.SqlServer.ForwardDestination"%'
    ORDER BY o.Due, o.RowVersion
);
GO
