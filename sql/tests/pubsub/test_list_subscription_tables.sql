SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'pubsub_list_subscription_tables';
GO
CREATE OR ALTER PROCEDURE pubsub_list_subscription_tables.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE pubsub_list_subscription_tables.[test list_subscription_tables returns each table but the default one]
AS
CREATE TABLE #listed (table_key nvarchar(128), display_name nvarchar(400), catalog_name sysname NULL, schema_name sysname, table_name sysname);

INSERT INTO #listed (table_key, display_name, catalog_name, schema_name, table_name)
EXEC rowpost.list_subscription_tables;

DECLARE @rows int = (SELECT COUNT(*) FROM #listed AS l);
SELECT l.table_key, l.schema_name, l.table_name INTO #actual FROM #listed AS l;
SELECT TOP (0) a.table_key, a.schema_name, a.table_name INTO #expected FROM #actual AS a;
INSERT INTO #expected (table_key, schema_name, table_name) VALUES (N'SampleRouting', N'dbo', N'SampleRouting');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
EXEC tSQLt.AssertEqualsTable @Expected = N'#expected', @Actual = N'#actual';
GO
CREATE OR ALTER PROCEDURE pubsub_list_subscription_tables.[test list_subscription_tables leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.list_subscription_tables;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
