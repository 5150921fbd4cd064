SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.find_handled
    @endpoint nvarchar(400), -- longer than allowed, so that the check sees a value that is too long
    @message_id nvarchar(400) -- longer than allowed, so that the check sees a value that is too long
AS
/*
Returns whether an endpoint has handled a message, and the operations of the handler if they are not sent yet.
Atomicity: in the caller's transaction.
Locking:   operations that are not sent yet are locked until the caller's transaction ends, so that only one session
           sends them. Waits 10 s at most.
*/
SET NOCOUNT, XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

IF LEN(CONCAT(@endpoint, N'.')) NOT BETWEEN 2 AND 201
    THROW 51023, N'The endpoint of an outbox must have 1 to 200 characters.', 1;

IF LEN(CONCAT(@message_id, N'.')) NOT BETWEEN 2 AND 201
    THROW 51022, N'The message id must have 1 to 200 characters to be stored in an outbox.', 1;

SELECT
    p.operations,
    CASE WHEN o.handled_at > SYSUTCDATETIME() THEN 0 ELSE DATEDIFF_BIG(MILLISECOND, o.handled_at, SYSUTCDATETIME()) END AS age_ms
FROM rowpost.outbox AS o
LEFT JOIN rowpost.outbox_operations AS p WITH (UPDLOCK, ROWLOCK)
    ON o.endpoint = p.endpoint AND o.message_id = p.message_id
WHERE o.endpoint = @endpoint AND o.message_id = @message_id;
GO
