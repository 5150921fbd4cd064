SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'pubsub_subscribe';
GO
CREATE OR ALTER PROCEDURE pubsub_subscribe.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE pubsub_subscribe.[test subscribe stores one row for each endpoint and topic]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]';
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.OrderShipped', @queue_address = N'Billing@[dbo]';
EXEC rowpost.subscribe @endpoint = N'Sales', @topic = N'Shop.OrderPlaced', @queue_address = N'Sales@[dbo]';

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.SubscriptionRouting AS s);
DECLARE @queue_address nvarchar(200) = (SELECT s.QueueAddress FROM dbo.SubscriptionRouting AS s WHERE s.Endpoint = N'Sales' AND s.Topic = N'Shop.OrderPlaced');
EXEC tSQLt.AssertEquals @Expected = 3, @Actual = @rows;
EXEC tSQLt.AssertEqualsString @Expected = N'Sales@[dbo]', @Actual = @queue_address;
GO
CREATE OR ALTER PROCEDURE pubsub_subscribe.[test subscribe moves a subscription to another queue]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Old@[dbo]';

EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'New@[dbo]';

DECLARE @queue_address nvarchar(200) = (SELECT s.QueueAddress FROM dbo.SubscriptionRouting AS s);
EXEC tSQLt.AssertEqualsString @Expected = N'New@[dbo]', @Actual = @queue_address;
GO
CREATE OR ALTER PROCEDURE pubsub_subscribe.[test subscribe refuses an empty topic]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51011;

EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'', @queue_address = N'Billing@[dbo]';
GO
CREATE OR ALTER PROCEDURE pubsub_subscribe.[test subscribe refuses a queue that is NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51011;

EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = NULL;
GO
CREATE OR ALTER PROCEDURE pubsub_subscribe.[test subscribe refuses a topic of 201 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51011;
DECLARE @topic nvarchar(400) = REPLICATE(N'x', 201);

EXEC rowpost.subscribe @endpoint = N'Billing', @topic = @topic, @queue_address = N'Billing@[dbo]';
GO
CREATE OR ALTER PROCEDURE pubsub_subscribe.[test subscribe takes a topic that looks like SQL as a topic]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'''); DELETE FROM dbo.SubscriptionRouting; --', @queue_address = N'Billing@[dbo]';

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.SubscriptionRouting AS s WHERE s.Topic = N'''); DELETE FROM dbo.SubscriptionRouting; --');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE pubsub_subscribe.[test subscribe is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]';
ROLLBACK TRANSACTION before_it;

EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.SubscriptionRouting';
GO
CREATE OR ALTER PROCEDURE pubsub_subscribe.[test subscribe writes into the table that is given]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]', @table_key = N'SampleRouting';

DECLARE @given int = (SELECT COUNT(*) FROM dbo.SampleRouting AS s);
EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.SubscriptionRouting';
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @given;
GO
CREATE OR ALTER PROCEDURE pubsub_subscribe.[test subscribe refuses a table that is not registered]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51011;

EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]', @table_key = N'100%';
GO
CREATE OR ALTER PROCEDURE pubsub_subscribe.[test subscribe leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.OrderPlaced', @queue_address = N'Billing@[dbo]';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
