SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.store_operations
    @endpoint nvarchar(400), -- longer than any that is stored, so that a value is never cut to one that is
    @message_id nvarchar(200),
    @operations nvarchar(max) -- JSON array, see outbox.py
AS
/*
Stores the operations of a handled message until they are sent.
Atomicity: in the caller's transaction, which records the message as well.
Locking:   the new row.
*/
SET NOCOUNT, XACT_ABORT ON;

INSERT INTO rowpost.outbox_operations (endpoint, message_id, operations)
VALUES (@endpoint, @message_id, @operations);
GO
