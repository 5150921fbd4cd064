SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.subscribe
    @endpoint nvarchar(400), -- the logical endpoint: its instances share one subscription
    @topic nvarchar(400), -- the event's full type name
    @queue_address nvarchar(400), -- canonical address of the endpoint's queue
    @table_key nvarchar(256) = NULL -- the table of subscriptions for a new one; NULL: the default table
AS
/*
Subscribes an endpoint to a topic, or moves its subscription to another queue.
A subscription that other tables of subscriptions have too moves there as well.
Atomicity: in the caller's transaction.
Locking:   one key of each table of subscriptions.
The caller must be allowed to receive from the queue, from the queue that it takes the subscription from, and from the queue
with the endpoint's name, if there is one. Operators may subscribe every queue.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @message nvarchar(2048);

-- The parameters are longer than allowed, so that the check sees a value that is too long.
IF LEN(ISNULL(@endpoint, N'')) = 0 OR LEN(ISNULL(@topic, N'')) = 0 OR LEN(ISNULL(@queue_address, N'')) = 0
   OR LEN(CONCAT(@endpoint, N'.')) > 201 OR LEN(CONCAT(@topic, N'.')) > 201 OR LEN(CONCAT(@queue_address, N'.')) > 201
    THROW 51011, N'The subscription cannot be stored: endpoint, topic and queue must be given, with at most 200 characters each.', 1;

IF @table_key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM rowpost.subscription_table AS t WHERE t.table_key = @table_key)
BEGIN
    SET @message = CONCAT(N'The subscription cannot be stored: no table of subscriptions is registered as ''', @table_key, N'''. Run rowpost apply.');
    SET @message = REPLACE(@message, N'%', N'%%'); -- THROW reads % as the start of a placeholder
    THROW 51011, @message, 1;
END;

DECLARE @endpoint_key nvarchar(128) = (SELECT q.queue_key FROM rowpost.queue AS q WHERE q.queue_name = @endpoint);

EXEC rowpost._require_subscriber @queue_address = @queue_address;

IF @endpoint_key IS NOT NULL
    EXEC rowpost._require_receiver @queue_key = @endpoint_key, @subject = @endpoint;

EXEC rowpost._write_subscriptions @endpoint = @endpoint, @topic = @topic, @queue_address = @queue_address, @table_key = @table_key;
GO
