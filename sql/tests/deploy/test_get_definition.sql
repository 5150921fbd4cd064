SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'deploy_get_definition';
GO
CREATE OR ALTER PROCEDURE deploy_get_definition.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE deploy_get_definition.[test get_definition returns the text of a procedure]
AS
CREATE TABLE #module (module_text nvarchar(max));

INSERT INTO #module (module_text)
EXEC rowpost.get_definition @object_name = N'rowpost.get_definition';

DECLARE @found int = (SELECT COUNT(*) FROM #module AS m WHERE m.module_text LIKE N'%for a review%');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @found;
GO
CREATE OR ALTER PROCEDURE deploy_get_definition.[test get_definition returns no row for an object that is not there]
AS
CREATE TABLE #module (module_text nvarchar(max));

INSERT INTO #module (module_text)
EXEC rowpost.get_definition @object_name = N'rowpost.[no such''] procedure; DROP TABLE rowpost.queue]';

EXEC tSQLt.AssertEmptyTable @TableName = N'#module';
GO
CREATE OR ALTER PROCEDURE deploy_get_definition.[test get_definition shows nothing outside of the schema rowpost]
AS
CREATE TABLE #module (module_text nvarchar(max));

INSERT INTO #module (module_text)
EXEC rowpost.get_definition @object_name = N'tSQLt.Run';

EXEC tSQLt.AssertEmptyTable @TableName = N'#module';
GO
CREATE OR ALTER PROCEDURE deploy_get_definition.[test get_definition leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.get_definition @object_name = N'rowpost.get_definition';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
