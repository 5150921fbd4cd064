SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'deploy_record_version';
GO
CREATE OR ALTER PROCEDURE deploy_record_version.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE deploy_record_version.[test record_version writes one row of history]
AS
EXEC rowpost.record_version @schema_version = 999, @tool_version = '9.9.9';
EXEC rowpost.record_version @schema_version = 999, @tool_version = '9.9.9';

DECLARE @rows int = (
    SELECT COUNT(*)
    FROM rowpost.version AS v
    WHERE v.schema_version = 999
      AND v.tool_version = '9.9.9'
      AND v.applied_by = SUSER_SNAME()
      AND ABS(DATEDIFF(SECOND, v.applied_at, SYSUTCDATETIME())) < 60
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE deploy_record_version.[test record_version takes another release of the same schema]
AS
EXEC rowpost.record_version @schema_version = 999, @tool_version = '9.9.9';

EXEC rowpost.record_version @schema_version = 999, @tool_version = '9.9.8';

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.version AS v WHERE v.schema_version = 999);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE deploy_record_version.[test record_version refuses to go back]
AS
EXEC rowpost.record_version @schema_version = 999, @tool_version = '9.9.9';
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51008;

EXEC rowpost.record_version @schema_version = 998, @tool_version = '9.9.9';
GO
CREATE OR ALTER PROCEDURE deploy_record_version.[test record_version is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.record_version @schema_version = 999, @tool_version = '9.9.9';
ROLLBACK TRANSACTION before_it;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.version AS v WHERE v.schema_version = 999);
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE deploy_record_version.[test record_version refuses a release of 51 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51034;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 51);

EXEC rowpost.record_version @schema_version = 999, @tool_version = @long;
GO
CREATE OR ALTER PROCEDURE deploy_record_version.[test record_version leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.record_version @schema_version = 999, @tool_version = '9.9.9';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
