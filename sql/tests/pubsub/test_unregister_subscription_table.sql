SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'pubsub_unregister_subscription_table';
GO
CREATE OR ALTER PROCEDURE pubsub_unregister_subscription_table.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE pubsub_unregister_subscription_table.[test unregister_subscription_table takes one table out and leaves its rows]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Sample@[dbo]', @table_key = N'SampleRouting';

EXEC rowpost.unregister_subscription_table @table_key = N'SampleRouting';

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.SampleRouting AS s);
EXEC tSQLt.AssertEmptyTable @TableName = N'rowpost.subscription_table';
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE pubsub_unregister_subscription_table.[test unregister_subscription_table does nothing with an unknown key]
AS
EXEC rowpost.unregister_subscription_table @table_key = N'Nothing';

DECLARE @registered int = (SELECT COUNT(*) FROM rowpost.subscription_table AS t);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @registered;
GO
CREATE OR ALTER PROCEDURE pubsub_unregister_subscription_table.[test unregister_subscription_table leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.unregister_subscription_table @table_key = N'SampleRouting';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
