SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_find_row_version';
GO
CREATE OR ALTER PROCEDURE stream_find_row_version.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_find_row_version.[test find_row_version returns the row version of the message at a place]
AS
CREATE TABLE #found (row_version bigint);
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';
DECLARE @first bigint = (SELECT s.RowVersion FROM dbo.Sample AS s WHERE s.Headers = N'a');
DECLARE @third bigint = (SELECT s.RowVersion FROM dbo.Sample AS s WHERE s.Headers = N'c');

INSERT INTO #found (row_version)
EXEC rowpost.[find_row_version:Sample] @above = @first, @upto = 9223372036854775807, @count = 2;

DECLARE @found bigint = (SELECT t.row_version FROM #found AS t);
EXEC tSQLt.AssertEquals @Expected = @third, @Actual = @found;
GO
CREATE OR ALTER PROCEDURE stream_find_row_version.[test find_row_version returns null if the range has fewer messages]
AS
CREATE TABLE #found (row_version bigint);
EXEC rowpost.[send_messages:Sample] @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"}]';
DECLARE @first bigint = (SELECT s.RowVersion FROM dbo.Sample AS s WHERE s.Headers = N'a');

INSERT INTO #found (row_version)
EXEC rowpost.[find_row_version:Sample] @above = 0, @upto = @first, @count = 2;

DECLARE @missing int = (SELECT COUNT(*) FROM #found AS t WHERE t.row_version IS NULL);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @missing;
GO
CREATE OR ALTER PROCEDURE stream_find_row_version.[test find_row_version returns the last message whose bytes fit]
AS
-- Babelfish: DATALENGTH counts the bytes of UTF-8, one for a character that has two in nvarchar
CREATE TABLE #found (row_version bigint);
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';
DECLARE @second bigint = (SELECT s.RowVersion FROM dbo.Sample AS s WHERE s.Headers = N'b');

INSERT INTO #found (row_version)
EXEC rowpost.[find_row_version:Sample] @above = 0, @upto = 9223372036854775807, @count = 3, @bytes = 5;

DECLARE @found bigint = (SELECT t.row_version FROM #found AS t);
EXEC tSQLt.AssertEquals @Expected = @second, @Actual = @found;
GO
CREATE OR ALTER PROCEDURE stream_find_row_version.[test find_row_version returns the first message although it is larger]
AS
CREATE TABLE #found (row_version bigint);
EXEC rowpost.[send_messages:Sample] @messages = N'[{"ordinal":0,"headers":"large"},{"ordinal":1,"headers":"b"}]';
DECLARE @first bigint = (SELECT s.RowVersion FROM dbo.Sample AS s WHERE s.Headers = N'large');

INSERT INTO #found (row_version)
EXEC rowpost.[find_row_version:Sample] @above = 0, @upto = 9223372036854775807, @count = 2, @bytes = 1;

DECLARE @found bigint = (SELECT t.row_version FROM #found AS t);
EXEC tSQLt.AssertEquals @Expected = @first, @Actual = @found;
GO
CREATE OR ALTER PROCEDURE stream_find_row_version.[test find_row_version refuses a place below one]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[find_row_version:Sample] @above = 0, @upto = 1, @count = 0;
GO
CREATE OR ALTER PROCEDURE stream_find_row_version.[test find_row_version leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[find_row_version:Sample] @above = 0, @upto = 1, @count = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
