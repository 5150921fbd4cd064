-- The part of tSQLt's interface that our test classes use, in plain T-SQL, for engines without CLR (tSQLt.org has the
-- real one, which deploy/tsqlt/run.py installs from a file). A test class is a schema; its procedures named test... are
-- the tests, and a procedure SetUp runs before each. Every test runs in a transaction that is rolled back.
SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE SCHEMA tSQLt;
GO
CREATE TABLE tSQLt.TestResult
(
    Id int IDENTITY (1, 1) NOT NULL,
    Class nvarchar(128) NOT NULL,
    TestCase nvarchar(400) NOT NULL,
    Result nvarchar(20) NOT NULL,
    Msg nvarchar(max) NOT NULL,
    TestStartTime datetime2(3) NOT NULL,
    TestEndTime datetime2(3) NOT NULL,
    CONSTRAINT test_result_key PRIMARY KEY CLUSTERED (Id)
);
GO
CREATE OR ALTER PROCEDURE tSQLt.DropClass
    @ClassName nvarchar(128)
AS
SET NOCOUNT ON;

DECLARE @statement nvarchar(max);
DECLARE @name nvarchar(400) = N'';

WHILE @name IS NOT NULL
BEGIN
    SET @name = (SELECT MIN(p.name) FROM sys.procedures AS p WHERE p.schema_id = SCHEMA_ID(@ClassName));
    SET @statement = CONCAT(N'DROP PROCEDURE ', QUOTENAME(@ClassName), N'.', QUOTENAME(@name));

    IF @name IS NOT NULL
        EXEC (@statement);
END;

SET @statement = CONCAT(N'DROP SCHEMA ', QUOTENAME(@ClassName));

IF SCHEMA_ID(@ClassName) IS NOT NULL
    EXEC (@statement);
GO
CREATE OR ALTER PROCEDURE tSQLt.NewTestClass
    @ClassName nvarchar(128)
AS
SET NOCOUNT ON;

DECLARE @statement nvarchar(max) = CONCAT(N'CREATE SCHEMA ', QUOTENAME(@ClassName));

EXEC tSQLt.DropClass @ClassName = @ClassName;
EXEC (@statement);
GO
CREATE OR ALTER PROCEDURE tSQLt.Fail
    @Message0 nvarchar(max) = N''
AS
SET NOCOUNT ON;

DECLARE @message nvarchar(2048) = LEFT(CONCAT(N'tSQLt.Failure: ', @Message0), 2048);

THROW 50000, @message, 1;
GO
CREATE OR ALTER PROCEDURE tSQLt.AssertEqualsString
    @Expected nvarchar(max),
    @Actual nvarchar(max),
    @Message nvarchar(max) = N''
AS
SET NOCOUNT ON;

-- compared byte by byte, and NULL equals NULL
IF (@Expected IS NULL AND @Actual IS NULL) OR CAST(@Expected AS varbinary(max)) = CAST(@Actual AS varbinary(max))
    RETURN;

DECLARE @failure nvarchar(max) = CONCAT(
    @Message, N' Expected: <', ISNULL(@Expected, N'NULL'), N'> but was: <', ISNULL(@Actual, N'NULL'), N'>'
);
EXEC tSQLt.Fail @Message0 = @failure;
GO
CREATE OR ALTER PROCEDURE tSQLt.AssertEquals
    @Expected sql_variant,
    @Actual sql_variant,
    @Message nvarchar(max) = N''
AS
SET NOCOUNT ON;

IF (@Expected IS NULL AND @Actual IS NULL) OR @Expected = @Actual
    RETURN;

DECLARE @failure nvarchar(max) = CONCAT(
    @Message, N' Expected: <', ISNULL(CAST(@Expected AS nvarchar(400)), N'NULL'),
    N'> but was: <', ISNULL(CAST(@Actual AS nvarchar(400)), N'NULL'), N'>'
);
EXEC tSQLt.Fail @Message0 = @failure;
GO
CREATE OR ALTER PROCEDURE tSQLt.AssertEmptyTable
    @TableName nvarchar(max),
    @Message nvarchar(max) = N''
AS
SET NOCOUNT ON;

-- a table, or a temporary one of the caller: its rows as a JSON array, NULL if there is none
DECLARE @found nvarchar(max);
DECLARE @statement nvarchar(max) = CONCAT(
    N'IF EXISTS (SELECT 1 FROM ', @TableName, N' AS t) SET @found = (SELECT * FROM ', @TableName, N' AS t FOR JSON PATH, INCLUDE_NULL_VALUES);'
);
EXEC sys.sp_executesql @statement, N'@found nvarchar(max) OUTPUT', @found = @found OUTPUT;

IF @found IS NULL
    RETURN;

DECLARE @failure nvarchar(max) = CONCAT(@Message, N' ', @TableName, N' was not empty: ', @found);
EXEC tSQLt.Fail @Message0 = @failure;
GO
CREATE OR ALTER PROCEDURE tSQLt.AssertEqualsTable
    @Expected nvarchar(max),
    @Actual nvarchar(max),
    @Message nvarchar(max) = NULL,
    @FailMsg nvarchar(max) = N'Unexpected/missing resultset rows!'
AS
SET NOCOUNT ON;

-- in any order; the same row twice is another table than the row once
DECLARE @wanted nvarchar(max);
DECLARE @found nvarchar(max);
DECLARE @statement nvarchar(max) = CONCAT(
    N'SET @wanted = (SELECT * FROM ', @Expected, N' AS t FOR JSON PATH, INCLUDE_NULL_VALUES);',
    N' SET @found = (SELECT * FROM ', @Actual, N' AS t FOR JSON PATH, INCLUDE_NULL_VALUES);'
);
EXEC sys.sp_executesql @statement, N'@wanted nvarchar(max) OUTPUT, @found nvarchar(max) OUTPUT', @wanted = @wanted OUTPUT, @found = @found OUTPUT;

DECLARE @difference nvarchar(max) = (
    SELECT d.row_text AS [row], SUM(d.expected) AS expected, SUM(d.actual) AS actual
    FROM
    (
        SELECT e.[value] AS row_text, 1 AS expected, 0 AS actual
        FROM OPENJSON(@wanted) AS e
        UNION ALL
        SELECT a.[value], 0, 1
        FROM OPENJSON(@found) AS a
    ) AS d
    GROUP BY d.row_text
    HAVING SUM(d.expected) <> SUM(d.actual)
    FOR JSON PATH
);

IF @difference IS NULL
    RETURN;

DECLARE @failure nvarchar(max) = CONCAT(@Message, N' ', @FailMsg, N' ', @difference);
EXEC tSQLt.Fail @Message0 = @failure;
GO
CREATE OR ALTER PROCEDURE tSQLt.ExpectException
    @ExpectedMessage nvarchar(max) = NULL,
    @ExpectedSeverity int = NULL,
    @ExpectedState int = NULL,
    @Message nvarchar(max) = NULL,
    @ExpectedMessagePattern nvarchar(max) = NULL,
    @ExpectedErrorNumber int = NULL
AS
SET NOCOUNT ON;

-- only the number: what the text says is no contract
IF @ExpectedErrorNumber IS NULL
    THROW 50000, N'This shim of tSQLt expects exceptions by @ExpectedErrorNumber only.', 1;

-- the session's context outlives a rollback
EXEC sys.sp_set_session_context @key = N'tSQLt.ExpectedErrorNumber', @value = @ExpectedErrorNumber;
GO
CREATE OR ALTER PROCEDURE tSQLt.Private_RunTest
    @class nvarchar(128),
    @test nvarchar(400)
AS
SET NOCOUNT ON;

DECLARE @started datetime2(3) = SYSUTCDATETIME();
DECLARE @set_up nvarchar(1000) = CONCAT(N'EXEC ', QUOTENAME(@class), N'.', QUOTENAME(N'SetUp'), N';');
DECLARE @call nvarchar(1000) = CONCAT(N'EXEC ', QUOTENAME(@class), N'.', QUOTENAME(@test), N';');
DECLARE @number int;
DECLARE @said nvarchar(max) = N'';
DECLARE @expected int;

EXEC sys.sp_set_session_context @key = N'tSQLt.ExpectedErrorNumber', @value = NULL;

BEGIN TRANSACTION;

BEGIN TRY
    IF OBJECT_ID(CONCAT(QUOTENAME(@class), N'.', QUOTENAME(N'SetUp')), N'P') IS NOT NULL
        EXEC (@set_up);

    EXEC (@call);

    IF @@TRANCOUNT <> 1
        THROW 50000, N'tSQLt.Failure: the test ended with other transactions than it began with.', 1;
END TRY
BEGIN CATCH
    SET @number = ERROR_NUMBER();
    SET @said = ERROR_MESSAGE();
END CATCH;

IF @@TRANCOUNT > 0
    ROLLBACK TRANSACTION;

SET @expected = CAST(SESSION_CONTEXT(N'tSQLt.ExpectedErrorNumber') AS int);

INSERT INTO tSQLt.TestResult (Class, TestCase, Result, Msg, TestStartTime, TestEndTime)
VALUES
(
    @class,
    @test,
    CASE
        WHEN ISNULL(@number, 0) = ISNULL(@expected, 0) THEN N'Success'
        WHEN @expected IS NOT NULL OR @said LIKE N'tSQLt.Failure:%' THEN N'Failure'
        ELSE N'Error'
    END,
    CASE
        WHEN ISNULL(@number, 0) = ISNULL(@expected, 0) THEN N''
        WHEN @expected IS NULL THEN CONCAT(@said, N' (error ', @number, N')')
        ELSE CONCAT(N'Expected error ', @expected, N' but was: ', ISNULL(CAST(@number AS nvarchar(20)), N'none'), N' ', @said)
    END,
    @started,
    SYSUTCDATETIME()
);
GO
CREATE OR ALTER PROCEDURE tSQLt.Run
    @TestName nvarchar(max) -- a class, or [class].[test]
AS
SET NOCOUNT ON;

DECLARE @class nvarchar(128) = ISNULL(PARSENAME(@TestName, 2), PARSENAME(@TestName, 1));
DECLARE @only nvarchar(400) = CASE WHEN PARSENAME(@TestName, 2) IS NOT NULL THEN PARSENAME(@TestName, 1) END;
DECLARE @test nvarchar(400) = N'';

DELETE r
FROM tSQLt.TestResult AS r;

IF @only IS NOT NULL
    EXEC tSQLt.Private_RunTest @class = @class, @test = @only;

WHILE @only IS NULL AND @test IS NOT NULL
BEGIN
    SET @test = (
        SELECT MIN(p.name)
        FROM sys.procedures AS p
        WHERE p.schema_id = SCHEMA_ID(@class)
          AND p.name LIKE N'test%'
          AND p.name > @test
    );

    IF @test IS NOT NULL
        EXEC tSQLt.Private_RunTest @class = @class, @test = @test;
END;
GO
