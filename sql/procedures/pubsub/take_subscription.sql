SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.take_subscription
    @publisher nvarchar(400), -- canonical address of the queue whose endpoint got the message
    @endpoint nvarchar(400), -- the subscriber, whose instances share one subscription
    @topic nvarchar(400), -- the event's full type name
    @queue_address nvarchar(400), -- canonical address of the subscriber's queue
    @ends bit -- 1: the subscriber does not want the topic any more; NULL as 0
AS
/*
Subscribes another endpoint to a topic, moves its subscription to another queue, or ends it, as its message to a publisher asks.
Atomicity: in the caller's transaction.
Locking:   one key of the subscription table.
The caller must be allowed to receive from the publisher's queue. Because everybody can publish to a subscribed queue, it must also be
allowed to send to the subscriber's queue, so that it reaches no queue that it cannot reach anyway; a grant of the right to send is how
an operator lets an endpoint subscribe. If there is a queue with the endpoint's name and the subscriber's queue is another one, the
caller must be allowed to receive from the former. What others subscribed is safe: rowpost.taken_subscription has what each publisher
recorded, and a publisher moves and ends nothing else, operators included. A subscription that is there already is left as it is.
*/
SET NOCOUNT, XACT_ABORT ON;

SET @ends = ISNULL(@ends, 0);

-- The parameters are longer than allowed, so that the check sees a value that is too long.
IF LEN(ISNULL(@endpoint, N'')) = 0 OR LEN(ISNULL(@topic, N'')) = 0 OR LEN(ISNULL(@queue_address, N'')) = 0
   OR LEN(CONCAT(@endpoint, N'.')) > 201 OR LEN(CONCAT(@topic, N'.')) > 201 OR LEN(CONCAT(@queue_address, N'.')) > 201
   OR LEN(CONCAT(@publisher, N'.')) > 201
    THROW 51011, N'The subscription cannot be stored: publisher, endpoint, topic and queue must be given, with at most 200 characters each.', 1;

EXEC rowpost._require_subscriber @queue_address = @publisher;

DECLARE @message nvarchar(2048);
DECLARE @endpoint_key nvarchar(128) = (SELECT q.queue_key FROM rowpost.queue AS q WHERE q.queue_name = @endpoint);
DECLARE @subscriber_key nvarchar(128) = rowpost."_queue_at"(@queue_address);
DECLARE @send nvarchar(300) = CONCAT(N'rowpost.', QUOTENAME(CONCAT(N'send_message:', @subscriber_key)));

IF @endpoint_key <> ISNULL(@subscriber_key, N'')
    EXEC rowpost._require_receiver @queue_key = @endpoint_key, @subject = @endpoint;

IF @ends = 0 AND ISNULL(HAS_PERMS_BY_NAME(@send, N'OBJECT', N'EXECUTE'), 0) = 0 AND rowpost."_is_operator"() = 0
BEGIN
    SET @message = CONCAT(
        N'The login ', ORIGINAL_LOGIN(), N' may not subscribe ''', @queue_address, N''': it may not send to that queue and is no operator.',
        N' Declare the queue below external if it is not registered, and let an operator run rowpost queue grant --send-to.'
    );
    SET @message = REPLACE(@message, N'%', N'%%'); -- THROW reads % as the start of a placeholder
    THROW 51025, @message, 1;
END;

DECLARE @current nvarchar(200) = (
    SELECT s.QueueAddress
    FROM dbo.SubscriptionRouting AS s WITH (UPDLOCK, HOLDLOCK)
    WHERE s.Endpoint = @endpoint
      AND s.Topic = @topic
);

-- What others have moved or ended since is not the publishers' any more.
-- rule bounded_change: a row for each publisher of one topic.
DELETE t
FROM rowpost.taken_subscription AS t
WHERE t.endpoint = @endpoint
  AND t.topic = @topic
  AND t.queue_address <> ISNULL(@current, N'');

DECLARE @own int = (SELECT COUNT(*) FROM rowpost.taken_subscription AS t WHERE t.endpoint = @endpoint AND t.topic = @topic AND t.publisher = @publisher);
DECLARE @others int = (SELECT COUNT(*) FROM rowpost.taken_subscription AS t WHERE t.endpoint = @endpoint AND t.topic = @topic AND t.publisher <> @publisher);

IF @own = 0 AND (@ends = 1 AND @current IS NOT NULL OR @ends = 0 AND @current <> @queue_address)
   OR @others > 0 AND @ends = 0 AND @current <> @queue_address
BEGIN
    SET @message = CONCAT(
        N'The subscription of ''', @endpoint, N''' to ''', @topic, N''' stays as it is: ''', @publisher, N''' did not record it, or not alone.',
        N' Let the subscriber''s own login or an operator change it.'
    );
    SET @message = REPLACE(@message, N'%', N'%%');
    THROW 51025, @message, 1;
END;

IF @ends = 1
BEGIN
    DELETE t
    FROM rowpost.taken_subscription AS t
    WHERE t.endpoint = @endpoint
      AND t.topic = @topic
      AND t.publisher = @publisher;

    IF @own = 1 AND @others = 0
        DELETE s
        FROM dbo.SubscriptionRouting AS s
        WHERE s.Endpoint = @endpoint
          AND s.Topic = @topic;

    RETURN;
END;

IF @current IS NULL
    INSERT INTO dbo.SubscriptionRouting (QueueAddress, Endpoint, Topic)
    VALUES (@queue_address, @endpoint, @topic);
ELSE IF @current <> @queue_address
    UPDATE s
    SET s.QueueAddress = @queue_address
    FROM dbo.SubscriptionRouting AS s
    WHERE s.Endpoint = @endpoint
      AND s.Topic = @topic;

IF @own = 1
    UPDATE t
    SET t.queue_address = @queue_address
    FROM rowpost.taken_subscription AS t
    WHERE t.endpoint = @endpoint
      AND t.topic = @topic
      AND t.publisher = @publisher;
ELSE IF @current IS NULL OR @others > 0
    INSERT INTO rowpost.taken_subscription (endpoint, topic, publisher, queue_address)
    VALUES (@endpoint, @topic, @publisher, @queue_address);
GO
