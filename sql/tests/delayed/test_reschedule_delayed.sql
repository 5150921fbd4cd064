SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'delayed_reschedule_delayed';
GO
CREATE OR ALTER PROCEDURE delayed_reschedule_delayed.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE delayed_reschedule_delayed.[test reschedule_delayed lets one message be due at another time]
AS
CREATE TABLE #browsed (delayed_key nvarchar(60), due datetime2(3), headers nvarchar(max), body_bytes bigint);
CREATE TABLE #done (rescheduled bit);
EXEC rowpost.[delay_message:Sample] @headers = N'this', @delay_ms = 3600000;
EXEC rowpost.[delay_message:Sample] @headers = N'other', @delay_ms = 3600000;
INSERT INTO #browsed (delayed_key, due, headers, body_bytes)
EXEC rowpost.[browse_delayed:Sample] @count = 10;
DECLARE @key nvarchar(60) = (SELECT b.delayed_key FROM #browsed AS b WHERE b.headers = N'this');

INSERT INTO #done (rescheduled)
EXEC rowpost.[reschedule_delayed:Sample] @delayed_key = @key, @delay_ms = 0;

DECLARE @rescheduled int = (SELECT COUNT(*) FROM #done AS d WHERE d.rescheduled = 1);
DECLARE @due nvarchar(max) = (SELECT d.Headers FROM dbo.[Sample.Delayed] AS d WHERE d.Due <= GETUTCDATE());
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rescheduled;
EXEC tSQLt.AssertEqualsString @Expected = N'this', @Actual = @due;
GO
CREATE OR ALTER PROCEDURE delayed_reschedule_delayed.[test reschedule_delayed says that a message is not there]
AS
CREATE TABLE #done (rescheduled bit);

INSERT INTO #done (rescheduled)
EXEC rowpost.[reschedule_delayed:Sample] @delayed_key = N'2026-11-24 10:00:00.000 1', @delay_ms = 0;
INSERT INTO #done (rescheduled)
EXEC rowpost.[reschedule_delayed:Sample] @delayed_key = N'no key', @delay_ms = 0;

DECLARE @not_there int = (SELECT COUNT(*) FROM #done AS d WHERE d.rescheduled = 0);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @not_there;
GO
CREATE OR ALTER PROCEDURE delayed_reschedule_delayed.[test reschedule_delayed refuses a delay beyond one hundred years]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51010;

EXEC rowpost.[reschedule_delayed:Sample] @delayed_key = N'x', @delay_ms = 3155760000001;
GO
CREATE OR ALTER PROCEDURE delayed_reschedule_delayed.[test reschedule_delayed leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[reschedule_delayed:Sample] @delayed_key = N'x', @delay_ms = 0;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
