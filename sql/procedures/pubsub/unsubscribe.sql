SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.unsubscribe
    @endpoint nvarchar(400), -- longer than any that is stored, so that a value is never cut to one that is
    @topic nvarchar(400)
AS
/*
Ends an endpoint's subscription to a topic; does nothing if there is none.
Atomicity: in the caller's transaction.
Locking:   one key of the subscription table.
The caller must be allowed to receive from the subscribed queue, or be an operator.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @address nvarchar(200) = (
    SELECT s.QueueAddress
    FROM dbo.SubscriptionRouting AS s WITH (UPDLOCK, HOLDLOCK)
    WHERE s.Endpoint = @endpoint
      AND s.Topic = @topic
);

IF @address IS NULL
    RETURN;

EXEC rowpost._require_subscriber @queue_address = @address;

DELETE s
FROM dbo.SubscriptionRouting AS s
WHERE s.Endpoint = @endpoint
  AND s.Topic = @topic;
GO
