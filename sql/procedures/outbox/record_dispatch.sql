SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.record_dispatch
    @endpoint nvarchar(400), -- longer than allowed, so that the check sees a value that is too long
    @message_id nvarchar(400)
AS
/*
Records in the queue's database that the operations of a handled message are sent; called in the same transaction.
Atomicity: in the caller's transaction, with what is sent.
Locking:   the new row. Waits for a session that sends the same operations, 10 s at most.
*/
SET NOCOUNT, XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

IF LEN(CONCAT(@endpoint, N'.')) NOT BETWEEN 2 AND 201
    THROW 51023, N'The endpoint of an outbox must have 1 to 200 characters.', 1;

IF LEN(CONCAT(@message_id, N'.')) > 201
    THROW 51022, N'The message id must have 1 to 200 characters to be stored in an outbox.', 1;

DECLARE @queue_key nvarchar(128) = (SELECT q.queue_key FROM rowpost.queue AS q WHERE q.queue_name = @endpoint);
EXEC rowpost._require_receiver @queue_key = @queue_key, @subject = @endpoint;

BEGIN TRY
    INSERT INTO rowpost.dispatch (endpoint, message_id, dispatched_at)
    VALUES (@endpoint, @message_id, SYSUTCDATETIME());
END TRY
BEGIN CATCH
    IF ERROR_NUMBER() IN (2601, 2627)
        THROW 51021, N'The operations cannot be sent: they were sent before.', 1;
    THROW;
END CATCH;
GO
