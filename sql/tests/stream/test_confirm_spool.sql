SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_confirm_spool';
GO
CREATE OR ALTER PROCEDURE stream_confirm_spool.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_confirm_spool.[test confirm_spool marks the spool as its streams]
AS
CREATE TABLE #moved (moved int, spooled_to bigint);
INSERT INTO #moved (moved, spooled_to)
EXEC rowpost.[move_to_spool:Sample] @owner = N'one', @count = 2;

EXEC rowpost.[confirm_spool:Sample] @owner = N'one';

DECLARE @confirmed int = (SELECT COUNT(*) FROM rowpost.spool AS s WHERE s.queue_key = N'Sample' AND s.confirmed = 1);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @confirmed;
GO
CREATE OR ALTER PROCEDURE stream_confirm_spool.[test confirm_spool refuses a stream whose spool it is not]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51030;

EXEC rowpost.[confirm_spool:Sample] @owner = N'nobody';
GO
CREATE OR ALTER PROCEDURE stream_confirm_spool.[test confirm_spool leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[move_to_spool:Sample] @owner = N'one', @count = 1;
EXEC rowpost.[confirm_spool:Sample] @owner = N'one';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
