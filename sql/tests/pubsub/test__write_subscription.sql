SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'pubsub__write_subscription';
GO
CREATE OR ALTER PROCEDURE pubsub__write_subscription.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE pubsub__write_subscription.[test _write_subscription makes a subscription only if it is asked to]
AS
EXEC rowpost.[_write_subscription:SubscriptionRouting] @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Sample@[dbo]';
DECLARE @before int = (SELECT COUNT(*) FROM dbo.SubscriptionRouting AS s);

EXEC rowpost.[_write_subscription:SubscriptionRouting] @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Sample@[dbo]', @new = 1;

DECLARE @after int = (SELECT COUNT(*) FROM dbo.SubscriptionRouting AS s);
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @before;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @after;
GO
CREATE OR ALTER PROCEDURE pubsub__write_subscription.[test _write_subscription moves and ends a subscription]
AS
EXEC rowpost.[_write_subscription:SubscriptionRouting] @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Old@[dbo]', @new = 1;

EXEC rowpost.[_write_subscription:SubscriptionRouting] @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'New@[dbo]';
DECLARE @queue_address nvarchar(200) = (SELECT s.QueueAddress FROM dbo.SubscriptionRouting AS s);
EXEC rowpost.[_write_subscription:SubscriptionRouting] @endpoint = N'Billing', @topic = N'Shop.A';

EXEC tSQLt.AssertEqualsString @Expected = N'New@[dbo]', @Actual = @queue_address;
EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.SubscriptionRouting';
GO
