SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'pubsub__read_subscriptions';
GO
CREATE OR ALTER PROCEDURE pubsub__read_subscriptions.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE pubsub__read_subscriptions.[test _read_subscriptions appends the subscriptions to its topics]
AS
DECLARE @found nvarchar(4000) = N'{"topic":"Shop.Z"}';
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Sample@[dbo]';
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.B', @queue_address = N'Sample@[dbo]';

EXEC rowpost.[_read_subscriptions:SubscriptionRouting] @topics = N'["Shop.A","Shop.C"]', @found = @found OUTPUT;

DECLARE @all nvarchar(max) = CONCAT(N'[', @found, N']');
DECLARE @topics nvarchar(max) = CONCAT(JSON_VALUE(@all, N'$[0].topic'), N' ', JSON_VALUE(@all, N'$[1].topic'), JSON_VALUE(@all, N'$[2].topic'));
EXEC tSQLt.AssertEqualsString @Expected = N'Shop.Z Shop.A', @Actual = @topics;
GO
CREATE OR ALTER PROCEDURE pubsub__read_subscriptions.[test _read_subscriptions reads all without topics]
AS
DECLARE @found nvarchar(4000);
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Sample@[dbo]';
EXEC rowpost.subscribe @endpoint = N'Sales', @topic = N'Shop.B', @queue_address = N'Sales@[dbo]';

EXEC rowpost.[_read_subscriptions:SubscriptionRouting] @found = @found OUTPUT;

DECLARE @all nvarchar(max) = CONCAT(N'[', @found, N']');
DECLARE @rows int = (
    SELECT COUNT(*)
    FROM OPENJSON(@all) WITH (topic nvarchar(200), endpoint nvarchar(200), queue_address nvarchar(200)) AS o
    WHERE (o.topic = N'Shop.A' AND o.endpoint = N'Billing' AND o.queue_address = N'Sample@[dbo]')
       OR (o.topic = N'Shop.B' AND o.endpoint = N'Sales' AND o.queue_address = N'Sales@[dbo]')
);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE pubsub__read_subscriptions.[test _read_subscriptions appends nothing if nobody is subscribed]
AS
DECLARE @found nvarchar(4000) = N'{}';

EXEC rowpost.[_read_subscriptions:SubscriptionRouting] @topics = N'["Shop.A"]', @found = @found OUTPUT;

EXEC tSQLt.AssertEqualsString @Expected = N'{}', @Actual = @found;
GO
