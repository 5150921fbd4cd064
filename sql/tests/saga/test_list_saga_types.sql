SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'saga_list_saga_types';
GO
CREATE OR ALTER PROCEDURE saga_list_saga_types.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE saga_list_saga_types.[test list_saga_types lists what is registered by name]
AS
CREATE TABLE #types
(
    saga_name nvarchar(400),
    saga_key nvarchar(128),
    schema_name sysname,
    table_name sysname,
    correlation_name sysname,
    correlation_type varchar(10),
    transitional_name sysname NULL,
    transitional_type varchar(10) NULL
);

INSERT INTO #types (saga_name, saga_key, schema_name, table_name, correlation_name, correlation_type, transitional_name, transitional_type)
EXEC rowpost.list_saga_types;

SELECT t.saga_name, t.correlation_name INTO #actual FROM #types AS t;
SELECT TOP (0) a.saga_name, a.correlation_name INTO #expected FROM #actual AS a;
INSERT INTO #expected (saga_name, correlation_name) VALUES (N'SampleSaga', N'Sample');
EXEC tSQLt.AssertEqualsTable @Expected = N'#expected', @Actual = N'#actual';
GO
CREATE OR ALTER PROCEDURE saga_list_saga_types.[test list_saga_types leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.list_saga_types;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
