SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'saga_check_sagas';
GO
CREATE OR ALTER PROCEDURE saga_check_sagas.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE saga_check_sagas.[test check_sagas finds a table that is gone and nothing else]
AS
CREATE TABLE #found (saga_name nvarchar(400), finding nvarchar(50), detail nvarchar(1000), remedy nvarchar(1000));
EXEC rowpost.register_saga
    @saga_key = N'Gone', @saga_name = N'Gone', @schema_name = N'dbo', @table_name = N'Gone', @correlation_name = N'Key', @correlation_type = 'string';

INSERT INTO #found (saga_name, finding, detail, remedy)
EXEC rowpost.check_sagas;

DECLARE @gone int = (SELECT COUNT(*) FROM #found AS f WHERE f.saga_name = N'Gone' AND f.finding = N'table_missing' AND f.remedy = N'rowpost apply');
DECLARE @all int = (SELECT COUNT(*) FROM #found AS f);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @gone;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @all;
GO
CREATE OR ALTER PROCEDURE saga_check_sagas.[test check_sagas leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.check_sagas;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
