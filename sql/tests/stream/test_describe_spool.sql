SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_describe_spool';
GO
CREATE OR ALTER PROCEDURE stream_describe_spool.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_describe_spool.[test describe_spool says whose the spool is and what lies in it]
AS
CREATE TABLE #moved (moved int, spooled_to bigint);
CREATE TABLE #spool (owned_by nvarchar(200), confirmed bit, first_number bigint, last_number bigint, taken_at datetime2(3));
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';
INSERT INTO #moved (moved, spooled_to)
EXEC rowpost.[move_to_spool:Sample] @owner = N'one', @count = 2;

INSERT INTO #spool (owned_by, confirmed, first_number, last_number, taken_at)
EXEC rowpost.[describe_spool:Sample];

DECLARE @right int = (
    SELECT COUNT(*)
    FROM #spool AS p
    WHERE p.owned_by = N'one' AND p.confirmed = 0 AND p.last_number = (SELECT m.spooled_to FROM #moved AS m) AND p.first_number < p.last_number
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE stream_describe_spool.[test describe_spool leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[describe_spool:Sample];

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
