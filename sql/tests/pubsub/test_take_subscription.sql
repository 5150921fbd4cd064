SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'pubsub_take_subscription';
GO
CREATE OR ALTER PROCEDURE pubsub_take_subscription.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE pubsub_take_subscription.[test take_subscription stores the subscription of another endpoint and who recorded it]
AS
EXEC rowpost.take_subscription @publisher = N'Sample', @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]', @ends = 0;

DECLARE @queue_address nvarchar(200) = (SELECT s.QueueAddress FROM dbo.SubscriptionRouting AS s WHERE s.Topic = N'Shop.OrderPlaced');
DECLARE @publisher nvarchar(200) = (SELECT t.publisher FROM rowpost.taken_subscription AS t WHERE t.endpoint = N'Billing' AND t.topic = N'Shop.OrderPlaced');
EXEC tSQLt.AssertEqualsString @Expected = N'Billing@[dbo]', @Actual = @queue_address;
EXEC tSQLt.AssertEqualsString @Expected = N'Sample', @Actual = @publisher;
GO
CREATE OR ALTER PROCEDURE pubsub_take_subscription.[test take_subscription moves and ends what the publisher recorded]
AS
EXEC rowpost.take_subscription @publisher = N'Sample', @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Old@[dbo]', @ends = 0;
EXEC rowpost.take_subscription @publisher = N'Sample', @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'New@[dbo]', @ends = 0;
DECLARE @queue_address nvarchar(200) = (SELECT s.QueueAddress FROM dbo.SubscriptionRouting AS s);

EXEC rowpost.take_subscription @publisher = N'Sample', @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'New@[dbo]', @ends = 1;

DECLARE @left int = (SELECT COUNT(*) FROM dbo.SubscriptionRouting AS s) + (SELECT COUNT(*) FROM rowpost.taken_subscription AS t);
EXEC tSQLt.AssertEqualsString @Expected = N'New@[dbo]', @Actual = @queue_address;
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @left;
GO
CREATE OR ALTER PROCEDURE pubsub_take_subscription.[test take_subscription refuses to move what the endpoint itself subscribed]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Old@[dbo]';
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51025;

EXEC rowpost.take_subscription @publisher = N'Sample', @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'New@[dbo]', @ends = 0;
GO
CREATE OR ALTER PROCEDURE pubsub_take_subscription.[test take_subscription refuses to end what the endpoint itself subscribed]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]';
EXEC rowpost.take_subscription @publisher = N'Sample', @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]', @ends = 0;
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51025;

EXEC rowpost.take_subscription @publisher = N'Sample', @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]', @ends = 1;
GO
CREATE OR ALTER PROCEDURE pubsub_take_subscription.[test take_subscription keeps what two publishers recorded until both end it]
AS
EXEC rowpost.take_subscription @publisher = N'Sample', @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]', @ends = 0;
EXEC rowpost.take_subscription @publisher = N'Second', @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]', @ends = 0;

EXEC rowpost.take_subscription @publisher = N'Sample', @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]', @ends = 1;
DECLARE @between int = (SELECT COUNT(*) FROM dbo.SubscriptionRouting AS s);
EXEC rowpost.take_subscription @publisher = N'Second', @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]', @ends = 1;

EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @between;
EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.SubscriptionRouting';
GO
CREATE OR ALTER PROCEDURE pubsub_take_subscription.[test take_subscription ends nothing without a subscription]
AS
EXEC rowpost.take_subscription @publisher = N'Sample', @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]', @ends = 1;

DECLARE @left int = (SELECT COUNT(*) FROM dbo.SubscriptionRouting AS s) + (SELECT COUNT(*) FROM rowpost.taken_subscription AS t);
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @left;
GO
CREATE OR ALTER PROCEDURE pubsub_take_subscription.[test take_subscription refuses an empty topic]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51011;

EXEC rowpost.take_subscription @publisher = N'Sample', @endpoint = N'Billing', @topic = N'', @queue_address = N'Billing@[dbo]', @ends = 0;
GO
CREATE OR ALTER PROCEDURE pubsub_take_subscription.[test take_subscription takes a topic that looks like SQL as a topic]
AS
EXEC rowpost.take_subscription
    @publisher = N'Sample', @endpoint = N'Billing', @topic = N'''); DELETE FROM dbo.SubscriptionRouting; --', @queue_address = N'Billing@[dbo]', @ends = 0;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.SubscriptionRouting AS s WHERE s.Topic = N'''); DELETE FROM dbo.SubscriptionRouting; --');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE pubsub_take_subscription.[test take_subscription is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.take_subscription @publisher = N'Sample', @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]', @ends = 0;
ROLLBACK TRANSACTION before_it;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.SubscriptionRouting AS s) + (SELECT COUNT(*) FROM rowpost.taken_subscription AS t);
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE pubsub_take_subscription.[test take_subscription leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.take_subscription @publisher = N'Sample', @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]', @ends = 0;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
