SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'pubsub_list_subscriptions';
GO
CREATE OR ALTER PROCEDURE pubsub_list_subscriptions.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE pubsub_list_subscriptions.[test list_subscriptions returns each subscription in the default table]
AS
EXEC rowpost.unregister_subscription_table @table_key = N'SampleRouting';
CREATE TABLE #listed (topic nvarchar(200), endpoint nvarchar(200), queue_address nvarchar(200));
EXEC rowpost.subscribe @endpoint = N'Sales', @topic = N'Shop.A', @queue_address = N'Sales@[dbo]';
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.B', @queue_address = N'Billing@[dbo]';
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Billing@[dbo]';

INSERT INTO #listed (topic, endpoint, queue_address)
EXEC rowpost.list_subscriptions;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM #listed AS l
    WHERE (l.topic = N'Shop.A' AND l.endpoint = N'Billing' AND l.queue_address = N'Billing@[dbo]')
       OR (l.topic = N'Shop.A' AND l.endpoint = N'Sales' AND l.queue_address = N'Sales@[dbo]')
       OR (l.topic = N'Shop.B' AND l.endpoint = N'Billing' AND l.queue_address = N'Billing@[dbo]')
);
DECLARE @rows int = (SELECT COUNT(*) FROM #listed AS l);
EXEC tSQLt.AssertEquals @Expected = 3, @Actual = @right;
EXEC tSQLt.AssertEquals @Expected = 3, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE pubsub_list_subscriptions.[test list_subscriptions returns nothing without subscriptions]
AS
EXEC rowpost.unregister_subscription_table @table_key = N'SampleRouting';
CREATE TABLE #listed (topic nvarchar(200), endpoint nvarchar(200), queue_address nvarchar(200));

INSERT INTO #listed (topic, endpoint, queue_address)
EXEC rowpost.list_subscriptions;

EXEC tSQLt.AssertEmptyTable @TableName = N'#listed';
GO
CREATE OR ALTER PROCEDURE pubsub_list_subscriptions.[test list_subscriptions lists what two tables have once]
AS
-- Babelfish: INSERT EXEC takes no procedure that calls another one
CREATE TABLE #listed (topic nvarchar(200), endpoint nvarchar(200), queue_address nvarchar(200));
EXEC rowpost.subscribe @endpoint = N'Sales', @topic = N'Shop.A', @queue_address = N'Sales@[dbo]';
EXEC rowpost.subscribe @endpoint = N'Sales', @topic = N'Shop.A', @queue_address = N'Sales@[dbo]', @table_key = N'SampleRouting';
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Billing@[dbo]', @table_key = N'SampleRouting';

INSERT INTO #listed (topic, endpoint, queue_address)
EXEC rowpost.list_subscriptions;

DECLARE @rows int = (SELECT COUNT(*) FROM #listed AS l);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE pubsub_list_subscriptions.[test list_subscriptions leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.list_subscriptions;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
