SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.record_handled
    @endpoint nvarchar(400), -- longer than allowed, so that the check sees a value that is too long
    @message_id nvarchar(400) -- longer than allowed, so that the check sees a value that is too long
AS
/*
Records that an endpoint has handled a message or is about to; the record is valid when the caller commits.
Atomicity: in the caller's transaction.
Locking:   the new row. Waits for a session that handles the same message, 10 s at most.
*/
SET NOCOUNT, XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

IF LEN(CONCAT(@endpoint, N'.')) NOT BETWEEN 2 AND 201
    THROW 51023, N'The endpoint of an outbox must have 1 to 200 characters.', 1;

IF LEN(CONCAT(@message_id, N'.')) NOT BETWEEN 2 AND 201
    THROW 51022, N'The message id must have 1 to 200 characters to be stored in an outbox.', 1;

BEGIN TRY
    INSERT INTO rowpost.outbox (endpoint, message_id, handled_at)
    VALUES (@endpoint, @message_id, SYSUTCDATETIME());
END TRY
BEGIN CATCH
    IF ERROR_NUMBER() IN (2601, 2627)
        THROW 51020, N'The message cannot be recorded: the endpoint has handled it before.', 1;
    THROW;
END CATCH;
GO
