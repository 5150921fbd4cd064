SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.forget_failure
    @queue_key nvarchar(256),
    @id uniqueidentifier -- the row's id
AS
/*
Deletes the count of a message that was handled or moved to the error queue.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.failure.
*/
SET NOCOUNT, XACT_ABORT ON;

EXEC rowpost._require_receiver @queue_key = @queue_key, @subject = @queue_key;

DELETE f
FROM rowpost.failure AS f
WHERE f.queue_key = @queue_key
  AND f.id = @id;
GO
