SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'delayed_browse_delayed';
GO
CREATE OR ALTER PROCEDURE delayed_browse_delayed.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE delayed_browse_delayed.[test browse_delayed returns the next ones first with the lengths of their bodies]
AS
CREATE TABLE #browsed (delayed_key nvarchar(60), due datetime2(3), headers nvarchar(max), body_bytes bigint);
EXEC rowpost.[delay_message:Sample] @headers = N'late', @body = 0x0102, @delay_ms = 7200000;
EXEC rowpost.[delay_message:Sample] @headers = N'soon', @body = 0x010203, @delay_ms = 3600000;

INSERT INTO #browsed (delayed_key, due, headers, body_bytes)
EXEC rowpost.[browse_delayed:Sample] @count = 1;

DECLARE @right int = (SELECT COUNT(*) FROM #browsed AS b WHERE b.headers = N'soon' AND b.body_bytes = 3);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE delayed_browse_delayed.[test browse_delayed leaves out what is due before]
AS
CREATE TABLE #browsed (delayed_key nvarchar(60), due datetime2(3), headers nvarchar(max), body_bytes bigint);
EXEC rowpost.[delay_message:Sample] @headers = N'soon', @delay_ms = 3600000;
EXEC rowpost.[delay_message:Sample] @headers = N'late', @delay_ms = 10800000;

INSERT INTO #browsed (delayed_key, due, headers, body_bytes)
EXEC rowpost.[browse_delayed:Sample] @count = 10, @due_in_ms = 7200000;

DECLARE @headers nvarchar(max) = (SELECT b.headers FROM #browsed AS b);
EXEC tSQLt.AssertEqualsString @Expected = N'late', @Actual = @headers;
GO
CREATE OR ALTER PROCEDURE delayed_browse_delayed.[test browse_delayed refuses a count of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[browse_delayed:Sample] @count = 0;
GO
CREATE OR ALTER PROCEDURE delayed_browse_delayed.[test browse_delayed refuses a time beyond one hundred years]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51010;

EXEC rowpost.[browse_delayed:Sample] @count = 1, @due_in_ms = 3155760000001;
GO
CREATE OR ALTER PROCEDURE delayed_browse_delayed.[test browse_delayed leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[browse_delayed:Sample] @count = 10;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
