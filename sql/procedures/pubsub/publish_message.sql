SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.publish_message
    @topics nvarchar(max), -- JSON array: the event's type and every type that it also is
    @headers nvarchar(max), -- JSON object of strings
    @body varbinary(max) = NULL,
    @time_to_be_received_ms bigint = NULL -- milliseconds until a copy expires, by this server's clock
AS
/*
Sends one copy of an event to every queue that is subscribed to any of its topics, in any table of subscriptions,
and returns the queues.
The server stores all copies. A queue with stored = 0 is not registered here, or its table is gone; the caller uses
send_to_subscriber for it.
Atomicity: in the caller's transaction, one INSERT a queue.
Locking:   only the new rows.
Order:     by queue.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @others nvarchar(max);

IF EXISTS (SELECT 1 FROM rowpost.subscription_table AS t)
    EXEC rowpost._read_other_subscriptions @topics = @topics, @found = @others OUTPUT;

DECLARE @destinations nvarchar(max);
-- The hints: a seek for each topic. A scan would wait for every subscription that somebody is making.
SELECT @destinations = ISNULL((
    SELECT d.queue_address, CASE WHEN rowpost."_has_table"(d.queue_key) = 1 THEN d.queue_key END AS queue_key
    FROM
    (
        -- one row for each queue, also if several spellings of its name are subscribed
        SELECT MIN(s.queue_address) AS queue_address, s.queue_key
        FROM
        (
            SELECT a.queue_address, rowpost."_queue_at"(a.queue_address) AS queue_key
            FROM
            (
                SELECT r.QueueAddress AS queue_address
                FROM OPENJSON(@topics) WITH (topic nvarchar(400) '$') AS t
                INNER JOIN dbo.SubscriptionRouting AS r
                    ON t.topic = r.Topic
                UNION ALL
                SELECT o.queue_address
                FROM OPENJSON(CONCAT(N'[', @others, N']')) WITH (queue_address nvarchar(200)) AS o
            ) AS a
        ) AS s
        GROUP BY s.queue_key, CASE WHEN s.queue_key IS NULL THEN s.queue_address END
    ) AS d
    FOR JSON PATH
), N'[]')
OPTION (LOOP JOIN, FORCE ORDER);

DECLARE @queue_key nvarchar(128) = N'';
DECLARE @procedure nvarchar(300);

WHILE 1 = 1
BEGIN
    SET @queue_key = (SELECT MIN(d.queue_key) FROM OPENJSON(@destinations) WITH (queue_key nvarchar(128)) AS d WHERE d.queue_key > @queue_key);

    IF @queue_key IS NULL
        BREAK;

    -- A call and not dynamic SQL, so that ownership chaining gives a publisher access to its subscribers' queues.
    SET @procedure = CONCAT(N'rowpost.', QUOTENAME(CONCAT(N'send_message:', @queue_key)));
    EXEC @procedure @headers = @headers, @body = @body, @time_to_be_received_ms = @time_to_be_received_ms;
END;

SELECT
    d.queue_address,
    CAST(CASE WHEN d.queue_key IS NULL THEN 0 ELSE 1 END AS bit) AS stored
FROM OPENJSON(@destinations) WITH (queue_address nvarchar(200), queue_key nvarchar(128)) AS d
ORDER BY d.queue_address;
GO
