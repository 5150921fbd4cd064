SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'pubsub__write_subscriptions';
GO
CREATE OR ALTER PROCEDURE pubsub__write_subscriptions.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE pubsub__write_subscriptions.[test _write_subscriptions makes a subscription in the given table alone]
AS
EXEC rowpost._write_subscriptions @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Sample@[dbo]', @table_key = N'SampleRouting';

DECLARE @given int = (SELECT COUNT(*) FROM dbo.SampleRouting AS s);
EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.SubscriptionRouting';
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @given;
GO
CREATE OR ALTER PROCEDURE pubsub__write_subscriptions.[test _write_subscriptions moves and ends a subscription in every table that has it]
AS
EXEC rowpost._write_subscriptions @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Old@[dbo]', @table_key = N'SampleRouting';
EXEC rowpost._write_subscriptions @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'New@[dbo]';
DECLARE @moved int = (SELECT COUNT(*) FROM dbo.SampleRouting AS s WHERE s.QueueAddress = N'New@[dbo]');
DECLARE @made int = (SELECT COUNT(*) FROM dbo.SubscriptionRouting AS s WHERE s.QueueAddress = N'New@[dbo]');

EXEC rowpost._write_subscriptions @endpoint = N'Billing', @topic = N'Shop.A';

DECLARE @left int = (SELECT COUNT(*) FROM dbo.SampleRouting AS s) + (SELECT COUNT(*) FROM dbo.SubscriptionRouting AS s);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @moved;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @made;
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @left;
GO
