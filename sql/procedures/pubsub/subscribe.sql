SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.subscribe
    @endpoint nvarchar(400), -- the logical endpoint: its instances share one subscription
    @topic nvarchar(400), -- the event's full type name
    @queue_address nvarchar(400) -- canonical address of the endpoint's queue
AS
/*
Subscribes an endpoint to a topic, or moves its subscription to another queue.
Atomicity: in the caller's transaction.
Locking:   one key of the subscription table.
*/
SET NOCOUNT, XACT_ABORT ON;

-- The parameters are longer than allowed, so that the check sees a value that is too long.
IF LEN(ISNULL(@endpoint, N'')) = 0 OR LEN(ISNULL(@topic, N'')) = 0 OR LEN(ISNULL(@queue_address, N'')) = 0
   OR LEN(CONCAT(@endpoint, N'.')) > 201 OR LEN(CONCAT(@topic, N'.')) > 201 OR LEN(CONCAT(@queue_address, N'.')) > 201
    THROW 51011, N'The subscription cannot be stored: endpoint, topic and queue must be given, with at most 200 characters each.', 1;

UPDATE s
SET s.QueueAddress = @queue_address
FROM dbo.SubscriptionRouting AS s WITH (UPDLOCK, HOLDLOCK)
WHERE s.Endpoint = @endpoint
  AND s.Topic = @topic;

IF @@ROWCOUNT = 0
    INSERT INTO dbo.SubscriptionRouting (QueueAddress, Endpoint, Topic)
    VALUES (@queue_address, @endpoint, @topic);
GO
