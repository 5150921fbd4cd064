SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[move_to_spool:{queue_key}]
    @owner nvarchar(400), -- names the stream: the unique id in its checkpoint
    @count int, -- how many at most, 1 to 4000
    @upto bigint = NULL, -- only messages up to this row version
    @take_over bit = NULL -- also take over another stream's spool, with the messages in it
AS
/*
Moves the oldest messages that nobody has locked from the queue to the spool of one stream.
Their numbers increase in the order in which they become visible, so that they are safe as offsets. Row versions are not.
Atomicity: one DELETE with OUTPUT INTO in the caller's transaction.
Locking:   skips rows that others lock (READPAST). Waits for another move of the same queue, so that one session at a
           time assigns numbers. A stream calls it in a transaction; otherwise this holds only for each statement.
Order:     the oldest first; within one move the numbers are in the order of the delete.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF LEN(CONCAT(@owner, N'.')) > 201
    THROW 51034, N'Nothing was moved: the owner of a spool may have at most 200 characters.', 1;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 4000
    THROW 51003, N'The number of messages to move must be between 1 and 4000.', 1;

DECLARE @last bigint = ISNULL(@upto, 9223372036854775807);
DECLARE @held_by nvarchar(200);
DECLARE @confirmed bit;

SELECT @held_by = s.owned_by, @confirmed = s.confirmed
FROM rowpost.spool AS s WITH (UPDLOCK, HOLDLOCK, ROWLOCK)
WHERE s.queue_key = N'{queue_key}';

IF @held_by IS NULL
    INSERT INTO rowpost.spool (queue_key, owned_by, confirmed, taken_at)
    VALUES (N'{queue_key}', @owner, 0, SYSUTCDATETIME());
ELSE IF @held_by <> @owner
BEGIN
    -- A stream that never confirmed has logged no batch, so that no stream continues with it.
    IF @confirmed = 1 AND ISNULL(@take_over, 0) = 0
    BEGIN
        DECLARE @message nvarchar(2048) = CONCAT(
            N'Another stream drains this queue, or has stopped and can continue: it has its own checkpoint.',
            N' Run that stream, or take over its spool (option takeOver) if it does not continue.'
        );
        SET @message = REPLACE(@message, N'%', N'%%'); -- THROW reads % as the start of a placeholder
        THROW 51030, @message, 1;
    END;

    UPDATE s
    SET s.owned_by = @owner, s.confirmed = 0, s.taken_at = SYSUTCDATETIME()
    FROM rowpost.spool AS s
    WHERE s.queue_key = N'{queue_key}';
END;

WITH oldest AS (
    SELECT TOP (@count) q.Id, q.CorrelationId, q.ReplyToAddress, q.Expires, q.Headers, q.Body, q.RowVersion
    FROM {queue_table} AS q WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE q.RowVersion <= @last
    ORDER BY q.RowVersion
)
DELETE FROM oldest
OUTPUT N'{queue_key}', deleted.Id, deleted.CorrelationId, deleted.ReplyToAddress, 1, deleted.Expires, deleted.Headers, deleted.Body, deleted.RowVersion
INTO rowpost.spooled_message (queue_key, id, correlation_id, reply_to_address, recoverable, expires, headers, body, row_version)
OPTION (MAXDOP 1);

DECLARE @moved int = @@ROWCOUNT;

SELECT @moved AS moved, ISNULL(MAX(m.number), 0) AS spooled_to
FROM rowpost.spooled_message AS m
WHERE m.queue_key = N'{queue_key}';
GO
