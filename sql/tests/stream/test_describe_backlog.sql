SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_describe_backlog';
GO
CREATE OR ALTER PROCEDURE stream_describe_backlog.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_describe_backlog.[test describe_backlog counts what is above a row version and names the oldest]
AS
CREATE TABLE #backlog (messages int, first_headers nvarchar(max));
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';
DECLARE @first bigint = (SELECT s.RowVersion FROM dbo.Sample AS s WHERE s.Headers = N'a');

INSERT INTO #backlog (messages, first_headers)
EXEC rowpost.[describe_backlog:Sample] @above = @first, @count = 100;

SELECT t.messages, t.first_headers INTO #actual FROM #backlog AS t;
SELECT TOP (0) a.messages, a.first_headers INTO #expected FROM #actual AS a;
INSERT INTO #expected (messages, first_headers) VALUES (2, N'b');
EXEC tSQLt.AssertEqualsTable @Expected = N'#expected', @Actual = N'#actual';
GO
CREATE OR ALTER PROCEDURE stream_describe_backlog.[test describe_backlog stops counting at the given number]
AS
CREATE TABLE #backlog (messages int, first_headers nvarchar(max));
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';

INSERT INTO #backlog (messages, first_headers)
EXEC rowpost.[describe_backlog:Sample] @above = 0, @count = 2;

DECLARE @messages int = (SELECT t.messages FROM #backlog AS t);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @messages;
GO
CREATE OR ALTER PROCEDURE stream_describe_backlog.[test describe_backlog refuses to count none and more than a million]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[describe_backlog:Sample] @above = 0, @count = 1000001;
GO
CREATE OR ALTER PROCEDURE stream_describe_backlog.[test describe_backlog leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[describe_backlog:Sample] @above = 0, @count = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
