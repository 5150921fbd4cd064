SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.store_operations
    @endpoint nvarchar(400), -- longer than any that is stored, so that a value is never cut to one that is
    @message_id nvarchar(400),
    @operations nvarchar(max) -- JSON array, see outbox.py
AS
/*
Stores the operations of a handled message until they are sent.
Atomicity: in the caller's transaction, which records the message as well.
Locking:   the new row.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(CONCAT(@endpoint, N'.')) > 201
    THROW 51023, N'The endpoint of an outbox must have 1 to 200 characters.', 1;

IF LEN(CONCAT(@message_id, N'.')) > 201
    THROW 51022, N'The message id must have 1 to 200 characters to be stored in an outbox.', 1;

INSERT INTO rowpost.outbox_operations (endpoint, message_id, operations)
VALUES (@endpoint, @message_id, @operations);
GO
