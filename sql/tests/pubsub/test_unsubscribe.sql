SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'pubsub_unsubscribe';
GO
CREATE OR ALTER PROCEDURE pubsub_unsubscribe.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE pubsub_unsubscribe.[test unsubscribe ends that one subscription]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]';
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.OrderShipped', @queue_address = N'Billing@[dbo]';
EXEC rowpost.subscribe @endpoint = N'Sales', @topic = N'Shop.OrderPlaced', @queue_address = N'Sales@[dbo]';

EXEC rowpost.unsubscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced';

DECLARE @ended int = (SELECT COUNT(*) FROM dbo.SubscriptionRouting AS s WHERE s.Endpoint = N'Billing' AND s.Topic = N'Shop.OrderPlaced');
DECLARE @left int = (SELECT COUNT(*) FROM dbo.SubscriptionRouting AS s);
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @ended;
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @left;
GO
CREATE OR ALTER PROCEDURE pubsub_unsubscribe.[test unsubscribe does nothing without a subscription]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]';

EXEC rowpost.unsubscribe @endpoint = N'Billing', @topic = N'Shop.Other';
EXEC rowpost.unsubscribe @endpoint = NULL, @topic = NULL;

DECLARE @left int = (SELECT COUNT(*) FROM dbo.SubscriptionRouting AS s);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @left;
GO
CREATE OR ALTER PROCEDURE pubsub_unsubscribe.[test unsubscribe takes a topic that looks like SQL as a topic]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]';

EXEC rowpost.unsubscribe @endpoint = N'Billing', @topic = N''' OR 1 = 1; --';

DECLARE @left int = (SELECT COUNT(*) FROM dbo.SubscriptionRouting AS s);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @left;
GO
CREATE OR ALTER PROCEDURE pubsub_unsubscribe.[test unsubscribe is undone by the callers rollback]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]';
SAVE TRANSACTION before_it;

EXEC rowpost.unsubscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced';
ROLLBACK TRANSACTION before_it;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.SubscriptionRouting AS s);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE pubsub_unsubscribe.[test unsubscribe ends the subscription in every table]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]', @table_key = N'SampleRouting';
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]';

EXEC rowpost.unsubscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced';

DECLARE @left int = (SELECT COUNT(*) FROM dbo.SampleRouting AS s) + (SELECT COUNT(*) FROM dbo.SubscriptionRouting AS s);
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @left;
GO
CREATE OR ALTER PROCEDURE pubsub_unsubscribe.[test unsubscribe leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.unsubscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
