SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'pubsub_register_subscription_table';
GO
CREATE OR ALTER PROCEDURE pubsub_register_subscription_table.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE pubsub_register_subscription_table.[test register_subscription_table enters a table once]
AS
EXEC rowpost.register_subscription_table @table_key = N'New', @display_name = N'New@[app]', @schema_name = N'app', @table_name = N'New';
EXEC rowpost.register_subscription_table @table_key = N'New', @display_name = N'New@[app]', @schema_name = N'app', @table_name = N'New';

DECLARE @rows int = (
    SELECT COUNT(*)
    FROM rowpost.subscription_table AS t
    WHERE t.table_key = N'New' AND t.display_name = N'New@[app]' AND t.catalog_name IS NULL AND t.schema_name = N'app' AND t.table_name = N'New'
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE pubsub_register_subscription_table.[test register_subscription_table refuses a table of 129 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51011;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 129);

EXEC rowpost.register_subscription_table @table_key = N'New', @display_name = N'New', @schema_name = N'dbo', @table_name = @long;
GO
CREATE OR ALTER PROCEDURE pubsub_register_subscription_table.[test register_subscription_table leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.register_subscription_table @table_key = N'New', @display_name = N'New@[app]', @schema_name = N'app', @table_name = N'New';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
