SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_subscriptions
AS
/*
Lists the subscriptions.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by topic, then endpoint.
*/
SET NOCOUNT, XACT_ABORT ON;

SELECT s.topic, s.endpoint, s.queue_address
FROM
(
    SELECT r.Topic AS topic, r.Endpoint AS endpoint, r.QueueAddress AS queue_address
    FROM dbo.SubscriptionRouting AS r
) AS s
ORDER BY s.topic, s.endpoint;
GO
