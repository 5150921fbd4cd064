SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'pubsub__read_other_subscriptions';
GO
CREATE OR ALTER PROCEDURE pubsub__read_other_subscriptions.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE pubsub__read_other_subscriptions.[test _read_other_subscriptions reads every table but the default one]
AS
DECLARE @found nvarchar(4000);
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Sample@[dbo]';
EXEC rowpost.subscribe @endpoint = N'Sales', @topic = N'Shop.A', @queue_address = N'Sales@[dbo]', @table_key = N'SampleRouting';
EXEC rowpost.subscribe @endpoint = N'Sales', @topic = N'Shop.B', @queue_address = N'Sales@[dbo]', @table_key = N'SampleRouting';

EXEC rowpost._read_other_subscriptions @topics = N'["Shop.A"]', @found = @found OUTPUT;

DECLARE @all nvarchar(max) = CONCAT(N'[', @found, N']');
DECLARE @rows int = (SELECT COUNT(*) FROM OPENJSON(@all));
DECLARE @right int = (SELECT COUNT(*) FROM OPENJSON(@all) WITH (endpoint nvarchar(200)) AS o WHERE o.endpoint = N'Sales');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
