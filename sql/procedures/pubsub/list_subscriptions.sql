SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_subscriptions
AS
/*
Lists the subscriptions in all tables of subscriptions; one that several tables have is listed once.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by topic, then endpoint.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @others nvarchar(max);

IF EXISTS (SELECT 1 FROM rowpost.subscription_table AS t)
    EXEC rowpost._read_other_subscriptions @found = @others OUTPUT;

SELECT s.topic, s.endpoint, s.queue_address
FROM
(
    SELECT r.Topic AS topic, r.Endpoint AS endpoint, r.QueueAddress AS queue_address
    FROM dbo.SubscriptionRouting AS r
    UNION
    SELECT o.topic, o.endpoint, o.queue_address
    FROM OPENJSON(CONCAT(N'[', @others, N']')) WITH (topic nvarchar(200), endpoint nvarchar(200), queue_address nvarchar(200)) AS o
) AS s
ORDER BY s.topic, s.endpoint, s.queue_address;
GO
