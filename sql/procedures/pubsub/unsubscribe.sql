SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.unsubscribe
    @endpoint nvarchar(400), -- longer than any that is stored, so that a value is never cut to one that is
    @topic nvarchar(400)
AS
/*
Ends an endpoint's subscription to a topic, in every table of subscriptions; does nothing if there is none.
Atomicity: in the caller's transaction.
Locking:   one key of each table of subscriptions.
The caller must be allowed to receive from the subscribed queue, or be an operator.
*/
SET NOCOUNT, XACT_ABORT ON;

EXEC rowpost._write_subscriptions @endpoint = @endpoint, @topic = @topic;
GO
