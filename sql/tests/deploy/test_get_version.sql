SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'deploy_get_version';
GO
CREATE OR ALTER PROCEDURE deploy_get_version.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE deploy_get_version.[test get_version says the newest schema and the engine]
AS
CREATE TABLE #version (schema_version int, tool_version varchar(50), applied_at datetime2(3), engine_version nvarchar(200));
EXEC rowpost.record_version @schema_version = 999, @tool_version = '9.9.9';

INSERT INTO #version (schema_version, tool_version, applied_at, engine_version)
EXEC rowpost.get_version;

DECLARE @newest int = (
    SELECT COUNT(*)
    FROM #version AS v
    WHERE v.schema_version = 999 AND v.tool_version = '9.9.9' AND v.engine_version LIKE N'SQL Server %'
);
DECLARE @rows int = (SELECT COUNT(*) FROM #version AS v);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @newest;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE deploy_get_version.[test get_version returns no row where nothing was recorded]
AS
CREATE TABLE #version (schema_version int, tool_version varchar(50), applied_at datetime2(3), engine_version nvarchar(200));
DELETE v FROM rowpost.version AS v;

INSERT INTO #version (schema_version, tool_version, applied_at, engine_version)
EXEC rowpost.get_version;

EXEC tSQLt.AssertEmptyTable @TableName = N'#version';
GO
CREATE OR ALTER PROCEDURE deploy_get_version.[test get_version leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.get_version;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
