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
The caller must be allowed to receive from the queue, from the queue that it takes the subscription from, and from the queue
with the endpoint's name, if there is one. Operators may subscribe every queue.
*/
SET NOCOUNT, XACT_ABORT ON;

-- The parameters are longer than allowed, so that the check sees a value that is too long.
IF LEN(ISNULL(@endpoint, N'')) = 0 OR LEN(ISNULL(@topic, N'')) = 0 OR LEN(ISNULL(@queue_address, N'')) = 0
   OR LEN(CONCAT(@endpoint, N'.')) > 201 OR LEN(CONCAT(@topic, N'.')) > 201 OR LEN(CONCAT(@queue_address, N'.')) > 201
    THROW 51011, N'The subscription cannot be stored: endpoint, topic and queue must be given, with at most 200 characters each.', 1;

DECLARE @old_address nvarchar(200) = (
    SELECT s.QueueAddress
    FROM dbo.SubscriptionRouting AS s WITH (UPDLOCK, HOLDLOCK)
    WHERE s.Endpoint = @endpoint
      AND s.Topic = @topic
);
DECLARE @endpoint_key nvarchar(128) = (SELECT q.queue_key FROM rowpost.queue AS q WHERE q.queue_name = @endpoint);

EXEC rowpost._require_subscriber @queue_address = @queue_address;

IF @old_address <> @queue_address
    EXEC rowpost._require_subscriber @queue_address = @old_address;

IF @endpoint_key IS NOT NULL
    EXEC rowpost._require_receiver @queue_key = @endpoint_key, @subject = @endpoint;

IF @old_address IS NULL
    INSERT INTO dbo.SubscriptionRouting (QueueAddress, Endpoint, Topic)
    VALUES (@queue_address, @endpoint, @topic);
ELSE
    UPDATE s
    SET s.QueueAddress = @queue_address
    FROM dbo.SubscriptionRouting AS s
    WHERE s.Endpoint = @endpoint
      AND s.Topic = @topic;
GO
