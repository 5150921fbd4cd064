SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.forget_dispatch
    @endpoint nvarchar(400), -- longer than any that is stored, so that a value is never cut to one that is
    @message_id nvarchar(400)
AS
/*
Deletes the record of record_dispatch after the outbox has deleted the operations, so that nobody can send them again.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.dispatch.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @queue_key nvarchar(128) = (SELECT q.queue_key FROM rowpost.queue AS q WHERE q.queue_name = @endpoint);
EXEC rowpost._require_receiver @queue_key = @queue_key, @subject = @endpoint;

DELETE d
FROM rowpost.dispatch AS d
WHERE d.endpoint = @endpoint AND d.message_id = @message_id;
GO
