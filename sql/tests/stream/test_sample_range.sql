SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_sample_range';
GO
CREATE OR ALTER PROCEDURE stream_sample_range.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_sample_range.[test sample_range measures the messages of a small range]
AS
CREATE TABLE #sample (row_version bigint, bytes bigint, messages bigint);
EXEC rowpost.[send_message:Sample] @headers = N'ab', @body = 0x010203;
EXEC rowpost.[send_message:Sample] @headers = N'c';
DECLARE @first bigint = (SELECT s.RowVersion FROM dbo.Sample AS s WHERE s.Headers = N'ab');

INSERT INTO #sample (row_version, bytes, messages)
EXEC rowpost.[sample_range:Sample] @above = 0, @upto = @first;

DECLARE @bytes bigint = (SELECT DATALENGTH(s.Headers) + DATALENGTH(s.Body) FROM dbo.Sample AS s WHERE s.Headers = N'ab');
SELECT t.row_version, t.bytes, t.messages INTO #actual FROM #sample AS t;
SELECT TOP (0) a.row_version, a.bytes, a.messages INTO #expected FROM #actual AS a;
INSERT INTO #expected (row_version, bytes, messages) VALUES (@first, @bytes, 1);
DECLARE @all int = (SELECT COUNT(*) FROM #sample AS t);
EXEC tSQLt.AssertEqualsTable @Expected = N'#expected', @Actual = N'#actual';
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @all;
GO
CREATE OR ALTER PROCEDURE stream_sample_range.[test sample_range returns nothing of an empty range]
AS
CREATE TABLE #sample (row_version bigint, bytes bigint, messages bigint);
EXEC rowpost.[send_message:Sample] @headers = N'a';

INSERT INTO #sample (row_version, bytes, messages)
EXEC rowpost.[sample_range:Sample] @above = 9223372036854775806, @upto = 9223372036854775807;

EXEC tSQLt.AssertEmptyTable @TableName = N'#sample';
GO
CREATE OR ALTER PROCEDURE stream_sample_range.[test sample_range leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[sample_range:Sample] @above = 0, @upto = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
