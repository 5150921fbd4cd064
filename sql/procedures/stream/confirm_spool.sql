SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[confirm_spool:{queue_key}]
    @owner nvarchar(400) -- names the stream: the unique id in its checkpoint
AS
/*
Records that the stream has logged a batch of the spool; from then on only this stream may continue with the spool.
Atomicity: in the caller's transaction.
Locking:   the spool's row, the first time.
*/
SET NOCOUNT, XACT_ABORT ON;

IF NOT EXISTS (SELECT 1 FROM rowpost.spool AS s WHERE s.queue_key = N'{queue_key}' AND s.owned_by = @owner)
BEGIN
    DECLARE @message nvarchar(2048) = CONCAT(
        N'Another stream has taken over the spool of this queue: it contains the messages of the last batch of this stream.',
        N' Let that stream continue. Give this one a new checkpoint and a new target.'
    );
    SET @message = REPLACE(@message, N'%', N'%%'); -- THROW reads % as the start of a placeholder
    THROW 51030, @message, 1;
END;

UPDATE s
SET s.confirmed = 1
FROM rowpost.spool AS s
WHERE s.queue_key = N'{queue_key}' AND s.owned_by = @owner AND s.confirmed = 0;
GO
