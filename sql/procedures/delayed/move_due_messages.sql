SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[move_due_messages:{queue_key}]
    @count int -- how many at most, 1 to 500
AS
/*
Moves due messages to the queue, and returns when the next one is due.
A message of an NServiceBus endpoint with the header ForwardDestination stays for receive_due_messages. forwards counts
these among the next @count due messages, so that a call reads few rows, independent of how many are due.
Atomicity: in the caller's transaction.
Locking:   one mover at a time per queue, elected by an application lock until the transaction ends; another caller
           gets moved = NULL at once. Rows that others lock are skipped.
Order:     by due time. Rows are selected in the order of the index on Due, because another order would read and lock all that are due.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 500
    THROW 51003, N'The number of messages to move must be between 1 and 500.', 1;

DECLARE @moved int;
DECLARE @elected int = 0;
DECLARE @now datetime = GETUTCDATE();
DECLARE @due TABLE (Headers nvarchar(max) NOT NULL, Body varbinary(max) NULL, Due datetime NOT NULL, RowVersion bigint NOT NULL);

IF @@TRANCOUNT > 0
    EXEC @elected = sys.sp_getapplock @Resource = N'rowpost mover {queue_key}', @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 0;

IF @elected >= 0
BEGIN
    WITH oldest AS (
        SELECT TOP (@count) d.Headers, d.Body, d.Due, d.RowVersion
        FROM {delayed_table} AS d WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        WHERE d.Due <= @now
        ORDER BY d.Due
    )
    DELETE FROM oldest
    OUTPUT deleted.Headers, deleted.Body, deleted.Due, deleted.RowVersion INTO @due (Headers, Body, Due, RowVersion)
    WHERE oldest.Headers NOT LIKE N'%"NServiceBus.SqlServer.ForwardDestination"%'
    OPTION (MAXDOP 1);

    -- The deployment makes it without the comment signs, if the table has Recoverable without a default.
    INSERT INTO {queue_table} (Id, Headers, Body /*, Recoverable */)
    SELECT NEWID(), d.Headers, d.Body /*, 1 */
    FROM @due AS d
    ORDER BY d.Due, d.RowVersion;

    SET @moved = @@ROWCOUNT;
END;

SELECT
    @moved AS moved,
    (
        SELECT COUNT(*)
        FROM
        (
            SELECT TOP (@count) d.Headers
            FROM {delayed_table} AS d WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
            WHERE d.Due <= @now
            ORDER BY d.Due
        ) AS f
        WHERE f.Headers LIKE N'%"NServiceBus.SqlServer.ForwardDestination"%'
    ) AS forwards,
    (
        SELECT CASE WHEN MIN(n.Due) > @now THEN DATEDIFF_BIG(MILLISECOND, @now, MIN(n.Due)) WHEN MIN(n.Due) <= @now THEN 0 END
        FROM {delayed_table} AS n WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
    ) AS next_due_ms;
GO
