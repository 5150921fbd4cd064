SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost._write_subscriptions
    @endpoint nvarchar(400),
    @topic nvarchar(400),
    @queue_address nvarchar(200) = NULL, -- NULL ends the subscription
    @table_key nvarchar(128) = NULL -- the table in which a new subscription is made; NULL: dbo.SubscriptionRouting
AS
/*
Changes or ends a subscription in every table of subscriptions that has it, and makes it in one of them.
Atomicity: in the caller's transaction.
Locking:   one key in each of these tables.
Order:     the default table first, then by key.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @each_key nvarchar(128) = N'';
DECLARE @procedure nvarchar(300);
DECLARE @new bit = CASE WHEN @table_key IS NULL THEN 1 ELSE 0 END;

EXEC rowpost.[_write_subscription:SubscriptionRouting]
    @endpoint = @endpoint, @topic = @topic, @queue_address = @queue_address, @new = @new;

WHILE 1 = 1
BEGIN
    SET @each_key = (SELECT MIN(t.table_key) FROM rowpost.subscription_table AS t WHERE t.table_key > @each_key);

    IF @each_key IS NULL
        BREAK;

    -- A call and not dynamic SQL, so that ownership chaining gives access to the table.
    SET @procedure = CONCAT(N'rowpost.', QUOTENAME(CONCAT(N'_write_subscription:', @each_key)));
    SET @new = CASE WHEN @each_key = @table_key THEN 1 ELSE 0 END;
    EXEC @procedure @endpoint = @endpoint, @topic = @topic, @queue_address = @queue_address, @new = @new;
END;
GO
