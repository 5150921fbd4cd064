SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.settle_operations
    @endpoint nvarchar(400), -- longer than any that is stored, so that a value is never cut to one that is
    @message_id nvarchar(400)
AS
/*
Deletes the operations of a handled message after they were sent.
Atomicity: in the caller's transaction.
Locking:   the message's rows; the record before the operations, as clean_outbox reads them.
If sending took more than an hour, the retention time of the message starts now.
*/
SET NOCOUNT, XACT_ABORT ON;

UPDATE o
SET o.handled_at = SYSUTCDATETIME()
FROM rowpost.outbox AS o
WHERE o.endpoint = @endpoint AND o.message_id = @message_id AND o.handled_at < DATEADD(HOUR, -1, SYSUTCDATETIME());

DELETE p
FROM rowpost.outbox_operations AS p
WHERE p.endpoint = @endpoint AND p.message_id = @message_id;
GO
