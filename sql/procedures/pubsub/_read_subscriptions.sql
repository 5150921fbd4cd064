SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[_read_subscriptions:{subscription_key}]
    @topics nvarchar(max) = NULL, -- JSON array; NULL: all
    @found nvarchar(max) OUTPUT -- JSON objects with commas between them, behind those that it holds already
AS
/*
Reads the subscriptions in one table of subscriptions, all or those to the given topics.
Atomicity: reads only.
Locking:   none that lasts.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @rows nvarchar(max);

IF @topics IS NULL
    SET @rows = (
        SELECT s.Topic AS topic, s.Endpoint AS endpoint, s.QueueAddress AS queue_address
        FROM {subscription_table} AS s
        FOR JSON PATH, WITHOUT_ARRAY_WRAPPER
    );
ELSE
    SET @rows = (
        SELECT s.Topic AS topic, s.Endpoint AS endpoint, s.QueueAddress AS queue_address
        FROM OPENJSON(@topics) WITH (topic nvarchar(400) '$') AS t
        INNER JOIN {subscription_table} AS s
            ON t.topic = s.Topic
        FOR JSON PATH, WITHOUT_ARRAY_WRAPPER
    );

IF @rows IS NOT NULL
    SET @found = CONCAT(@found + N',', @rows);
GO
