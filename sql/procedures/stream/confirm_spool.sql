SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[confirm_spool:{queue_key}]
    @owner nvarchar(200) -- names the stream: its checkpoint's own mark
AS
/*
Says that a batch of the spool stands in its stream's log: from now on the spool waits for this stream and no other.
Atomicity: in the caller's transaction.
Locking:   the spool's row, the first time.
*/
SET NOCOUNT, XACT_ABORT ON;

IF NOT EXISTS (SELECT 1 FROM rowpost.spool AS s WHERE s.queue_key = N'{queue_key}' AND s.owned_by = @owner)
BEGIN
    DECLARE @message nvarchar(2048) = CONCAT(
        N'Another stream has taken over the spool of this queue: the messages of this one''s last batch are there.',
        N' Let that stream go on; this one needs a new checkpoint, and a place of its own to write to.'
    );
    THROW 51030, @message, 1;
END;

UPDATE s
SET s.confirmed = 1
FROM rowpost.spool AS s
WHERE s.queue_key = N'{queue_key}' AND s.owned_by = @owner AND s.confirmed = 0;
GO
