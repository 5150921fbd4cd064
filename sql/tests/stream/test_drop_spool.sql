SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_drop_spool';
GO
CREATE OR ALTER PROCEDURE stream_drop_spool.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_drop_spool.[test drop_spool deletes up to a number and says whether messages remain]
AS
CREATE TABLE #moved (moved int, spooled_to bigint);
CREATE TABLE #dropped (dropped bigint, remaining bit);
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';
INSERT INTO #moved (moved, spooled_to)
EXEC rowpost.[move_to_spool:Sample] @owner = N'one', @count = 3;
DECLARE @upto bigint = (SELECT m.spooled_to - 1 FROM #moved AS m);

INSERT INTO #dropped (dropped, remaining)
EXEC rowpost.[drop_spool:Sample] @owner = N'one', @upto = @upto, @release = 1;

SELECT d.dropped, d.remaining INTO #actual FROM #dropped AS d;
SELECT TOP (0) a.dropped, a.remaining INTO #expected FROM #actual AS a;
INSERT INTO #expected (dropped, remaining) VALUES (2, 1);
EXEC tSQLt.AssertEqualsTable @Expected = N'#expected', @Actual = N'#actual';
GO
CREATE OR ALTER PROCEDURE stream_drop_spool.[test drop_spool refuses a stream whose spool it is not]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51030;

EXEC rowpost.[drop_spool:Sample] @owner = N'nobody', @upto = 1;
GO
CREATE OR ALTER PROCEDURE stream_drop_spool.[test drop_spool leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[move_to_spool:Sample] @owner = N'one', @count = 1;
EXEC rowpost.[drop_spool:Sample] @owner = N'one', @upto = 0;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
