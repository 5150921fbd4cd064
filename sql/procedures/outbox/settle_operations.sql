SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.settle_operations
    @endpoint nvarchar(200),
    @message_id nvarchar(200)
AS
/*
Drops what a handled message caused: it has left.
Atomicity: in the caller's transaction.
Locking:   the message's rows.
Where it took more than an hour to leave, the message is remembered for the whole retention time from now on.
*/
SET NOCOUNT, XACT_ABORT ON;

DELETE p
FROM rowpost.outbox_operations AS p
WHERE p.endpoint = @endpoint AND p.message_id = @message_id;

UPDATE o
SET o.handled_at = SYSUTCDATETIME()
FROM rowpost.outbox AS o
WHERE o.endpoint = @endpoint AND o.message_id = @message_id AND o.handled_at < DATEADD(HOUR, -1, SYSUTCDATETIME());
GO
