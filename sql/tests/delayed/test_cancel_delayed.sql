SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'delayed_cancel_delayed';
GO
CREATE OR ALTER PROCEDURE delayed_cancel_delayed.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE delayed_cancel_delayed.[test cancel_delayed removes and returns one message]
AS
-- Babelfish: INSERT EXEC misses the rows of an OUTPUT clause
CREATE TABLE #browsed (delayed_key nvarchar(60), due datetime2(3), headers nvarchar(max), body_bytes bigint);
CREATE TABLE #cancelled (due datetime2(3), headers nvarchar(max), body varbinary(max));
EXEC rowpost.[delay_message:Sample] @headers = N'this', @body = 0x01, @delay_ms = 3600000;
EXEC rowpost.[delay_message:Sample] @headers = N'other', @delay_ms = 3600000;
INSERT INTO #browsed (delayed_key, due, headers, body_bytes)
EXEC rowpost.[browse_delayed:Sample] @count = 10;
DECLARE @key nvarchar(60) = (SELECT b.delayed_key FROM #browsed AS b WHERE b.headers = N'this');

INSERT INTO #cancelled (due, headers, body)
EXEC rowpost.[cancel_delayed:Sample] @delayed_key = @key;

DECLARE @right int = (SELECT COUNT(*) FROM #cancelled AS c WHERE c.headers = N'this' AND c.body = 0x01);
DECLARE @left nvarchar(max) = (SELECT d.Headers FROM dbo.[Sample.Delayed] AS d);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
EXEC tSQLt.AssertEqualsString @Expected = N'other', @Actual = @left;
GO
CREATE OR ALTER PROCEDURE delayed_cancel_delayed.[test cancel_delayed returns nothing for a message that is not there]
AS
CREATE TABLE #cancelled (due datetime2(3), headers nvarchar(max), body varbinary(max));

INSERT INTO #cancelled (due, headers, body)
EXEC rowpost.[cancel_delayed:Sample] @delayed_key = N'2026-11-24 10:00:00.000 1';

EXEC tSQLt.AssertEmptyTable @TableName = N'#cancelled';
GO
CREATE OR ALTER PROCEDURE delayed_cancel_delayed.[test cancel_delayed leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[cancel_delayed:Sample] @delayed_key = N'x';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
