SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.record_dispatch
    @endpoint nvarchar(200),
    @message_id nvarchar(200)
AS
/*
Writes down, in the queue's database, that a handled message's operations leave; called together with the sends.
Atomicity: in the caller's transaction, with what is sent.
Locking:   the new row. Waits for whoever sends the same operations, 10 s at most.
*/
SET NOCOUNT, XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

BEGIN TRY
    INSERT INTO rowpost.dispatch (endpoint, message_id, dispatched_at)
    VALUES (@endpoint, @message_id, SYSUTCDATETIME());
END TRY
BEGIN CATCH
    IF ERROR_NUMBER() IN (2601, 2627)
        THROW 51021, N'The operations of this message have left already.', 1;
    THROW;
END CATCH;
GO
