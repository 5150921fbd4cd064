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
Order:     by due time.
Babelfish: no DELETE from a CTE; READPAST is ignored, so that it waits for rows that others hold. Row by row, without a
table variable, whose lock would hold other sessions until the transaction ends.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 500
    THROW 51003, N'The number of messages to move must be between 1 and 500.', 1;

DECLARE @moved int;
DECLARE @elected int = 0;
DECLARE @now datetime = GETUTCDATE();
DECLARE @row_version bigint = 0;
DECLARE @headers nvarchar(max);
DECLARE @body varbinary(max);

IF @@TRANCOUNT > 0
    EXEC @elected = sys.sp_getapplock @Resource = N'rowpost mover {queue_key}', @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 0;

IF @elected >= 0
BEGIN
    SET @moved = 0;

    WHILE @moved < @count AND @row_version IS NOT NULL
    BEGIN
        SET @row_version = NULL;

        SELECT TOP (1)
            @row_version = d.RowVersion,
            @headers = d.Headers,
            @body = d.Body
        FROM {delayed_table} AS d
        WHERE d.Due <= @now
          AND d.Headers NOT LIKE N'%"NServiceBus.SqlServer.ForwardDestination"%'
        ORDER BY d.Due, d.RowVersion;

        DELETE d
        FROM {delayed_table} AS d
        WHERE d.RowVersion = @row_version;

        IF @@ROWCOUNT = 1
        BEGIN
            INSERT INTO {queue_table} (Id, Headers, Body /*, Recoverable */)
            VALUES (NEWID(), @headers, @body /*, 1 */);

            SET @moved = @moved + 1;
        END;
    END;
END;

SELECT
    @moved AS moved,
    (
        SELECT COUNT(*)
        FROM
        (
            SELECT TOP (@count) d.Headers
            FROM {delayed_table} AS d WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
            WHERE d.Due <= @now
            ORDER BY d.Due, d.RowVersion
        ) AS f
        WHERE f.Headers LIKE N'%"NServiceBus.SqlServer.ForwardDestination"%'
    ) AS forwards,
    (
        SELECT CASE WHEN MIN(n.Due) > @now THEN DATEDIFF_BIG(MILLISECOND, @now, MIN(n.Due)) WHEN MIN(n.Due) <= @now THEN 0 END
        FROM {delayed_table} AS n WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
    ) AS next_due_ms;
GO
