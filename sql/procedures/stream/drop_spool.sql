SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[drop_spool:{queue_key}]
    @owner nvarchar(400), -- names the stream: the unique id in its checkpoint
    @upto bigint, -- the last number of a batch that the stream has committed
    @release bit = NULL -- and release the queue for another stream, if the spool is empty now
AS
/*
Deletes spooled messages that their stream has stored durably.
Atomicity: in the caller's transaction.
Locking:   the spool's row; waits for move_to_spool.
*/
SET NOCOUNT, XACT_ABORT ON;

IF NOT EXISTS (SELECT 1 FROM rowpost.spool AS s WITH (UPDLOCK, ROWLOCK) WHERE s.queue_key = N'{queue_key}' AND s.owned_by = @owner)
    THROW 51030, N'Nothing was deleted: the spool of this queue belongs to another stream.', 1;

DECLARE @dropped bigint = 0;
DECLARE @batch int = 4000;

WHILE @batch = 4000 -- fewer rows a statement than the threshold of lock escalation
BEGIN
    DELETE TOP (4000) FROM m
    FROM rowpost.spooled_message AS m
    WHERE m.queue_key = N'{queue_key}' AND m.number <= @upto;

    SET @batch = @@ROWCOUNT;
    SET @dropped = @dropped + @batch;
END;

DECLARE @remaining bit = 0;

IF EXISTS (SELECT 1 FROM rowpost.spooled_message AS m WHERE m.queue_key = N'{queue_key}')
    SET @remaining = 1;

IF @release = 1 AND @remaining = 0
    UPDATE s SET s.confirmed = 0 FROM rowpost.spool AS s WHERE s.queue_key = N'{queue_key}';

SELECT @dropped AS dropped, @remaining AS remaining;
GO
