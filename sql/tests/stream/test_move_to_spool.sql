SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_move_to_spool';
GO
CREATE OR ALTER PROCEDURE stream_move_to_spool.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_move_to_spool.[test move_to_spool moves the oldest messages and says how many]
AS
CREATE TABLE #moved (moved int, spooled_to bigint);
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';

INSERT INTO #moved (moved, spooled_to)
EXEC rowpost.[move_to_spool:Sample] @owner = N'one', @count = 2;

DECLARE @left nvarchar(max) = (SELECT MAX(s.Headers) FROM dbo.Sample AS s);
DECLARE @spooled int = (SELECT COUNT(*) FROM rowpost.spooled_message AS m WHERE m.queue_key = N'Sample' AND m.headers IN (N'a', N'b'));
DECLARE @moved int = (SELECT m.moved FROM #moved AS m);
EXEC tSQLt.AssertEqualsString @Expected = N'c', @Actual = @left;
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @spooled;
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @moved;
GO
CREATE OR ALTER PROCEDURE stream_move_to_spool.[test move_to_spool refuses another stream once the first one was confirmed]
AS
CREATE TABLE #moved (moved int, spooled_to bigint);
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51030;
INSERT INTO #moved (moved, spooled_to)
EXEC rowpost.[move_to_spool:Sample] @owner = N'one', @count = 2;
EXEC rowpost.[confirm_spool:Sample] @owner = N'one';

EXEC rowpost.[move_to_spool:Sample] @owner = N'two', @count = 2;
GO
CREATE OR ALTER PROCEDURE stream_move_to_spool.[test move_to_spool takes over when it is told to]
AS
CREATE TABLE #moved (moved int, spooled_to bigint);
INSERT INTO #moved (moved, spooled_to)
EXEC rowpost.[move_to_spool:Sample] @owner = N'one', @count = 2;
EXEC rowpost.[confirm_spool:Sample] @owner = N'one';

INSERT INTO #moved (moved, spooled_to)
EXEC rowpost.[move_to_spool:Sample] @owner = N'two', @count = 2, @take_over = 1;

DECLARE @owner nvarchar(200) = (SELECT s.owned_by FROM rowpost.spool AS s WHERE s.queue_key = N'Sample' AND s.confirmed = 0);
EXEC tSQLt.AssertEqualsString @Expected = N'two', @Actual = @owner;
GO
CREATE OR ALTER PROCEDURE stream_move_to_spool.[test move_to_spool refuses a count of 4001]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[move_to_spool:Sample] @owner = N'one', @count = 4001;
GO
CREATE OR ALTER PROCEDURE stream_move_to_spool.[test move_to_spool is undone by the callers rollback]
AS
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';
SAVE TRANSACTION before_it;

EXEC rowpost.[move_to_spool:Sample] @owner = N'one', @count = 2;
ROLLBACK TRANSACTION before_it;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 3, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE stream_move_to_spool.[test move_to_spool refuses an owner of 201 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51034;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 201);

EXEC rowpost.[move_to_spool:Sample] @owner = @long, @count = 1;
GO
CREATE OR ALTER PROCEDURE stream_move_to_spool.[test move_to_spool leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[move_to_spool:Sample] @owner = N'one', @count = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
