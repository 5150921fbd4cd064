SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[_write_subscription:{subscription_key}]
    @endpoint nvarchar(400),
    @topic nvarchar(400),
    @queue_address nvarchar(200) = NULL, -- NULL ends the subscription
    @new bit = NULL -- 1: make the subscription if it is not there
AS
/*
Changes, ends or makes one subscription in one table of subscriptions.
Atomicity: in the caller's transaction.
Locking:   one key of the subscription table.
The caller must be allowed to receive from the queue that is subscribed now, or be an operator.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @old_address nvarchar(200) = (
    SELECT s.QueueAddress
    FROM {subscription_table} AS s WITH (UPDLOCK, HOLDLOCK)
    WHERE s.Endpoint = @endpoint
      AND s.Topic = @topic
);

IF @old_address <> ISNULL(@queue_address, N'')
    EXEC rowpost._require_subscriber @queue_address = @old_address;

IF @queue_address IS NULL
    DELETE s
    FROM {subscription_table} AS s
    WHERE s.Endpoint = @endpoint
      AND s.Topic = @topic;
ELSE IF @old_address IS NOT NULL
    UPDATE s
    SET s.QueueAddress = @queue_address
    FROM {subscription_table} AS s
    WHERE s.Endpoint = @endpoint
      AND s.Topic = @topic;
ELSE IF @new = 1
    INSERT INTO {subscription_table} (QueueAddress, Endpoint, Topic)
    VALUES (@queue_address, @endpoint, @topic);
GO
