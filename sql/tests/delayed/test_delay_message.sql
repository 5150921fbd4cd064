SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'delayed_delay_message';
GO
CREATE OR ALTER PROCEDURE delayed_delay_message.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE delayed_delay_message.[test delay_message stores the message as given]
AS
EXEC rowpost.[delay_message:Sample] @headers = N'{"a":"漢🚀"}', @body = 0x00FF7B, @delay_ms = 60000;

DECLARE @stored int = (SELECT COUNT(*) FROM dbo.[Sample.Delayed] AS d WHERE d.Headers = N'{"a":"漢🚀"}' AND d.Body = 0x00FF7B);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @stored;
EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.Sample';
GO
CREATE OR ALTER PROCEDURE delayed_delay_message.[test delay_message reckons Due on either side of now]
AS
DECLARE @before datetime = GETUTCDATE();

EXEC rowpost.[delay_message:Sample] @headers = N'past', @delay_ms = -86401000;
EXEC rowpost.[delay_message:Sample] @headers = N'future', @delay_ms = 5184000500;
EXEC rowpost.[delay_message:Sample] @headers = N'far', @delay_ms = 3155760000000;

DECLARE @past int = (SELECT COUNT(*) FROM dbo.[Sample.Delayed] AS d WHERE d.Headers = N'past' AND d.Due < DATEADD(DAY, -1, GETUTCDATE()));
DECLARE @future int = (
    SELECT COUNT(*)
    FROM dbo.[Sample.Delayed] AS d
    WHERE d.Headers = N'future'
      AND d.Due BETWEEN DATEADD(DAY, 60, @before) AND DATEADD(SECOND, 30, DATEADD(DAY, 60, GETUTCDATE()))
);
DECLARE @years int = (SELECT DATEDIFF(YEAR, @before, d.Due) FROM dbo.[Sample.Delayed] AS d WHERE d.Headers = N'far');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @past;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @future;
EXEC tSQLt.AssertEquals @Expected = 100, @Actual = @years;
GO
CREATE OR ALTER PROCEDURE delayed_delay_message.[test delay_message refuses a delay beyond one hundred years]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51010;

EXEC rowpost.[delay_message:Sample] @headers = N'', @delay_ms = 3155760000001;
GO
CREATE OR ALTER PROCEDURE delayed_delay_message.[test delay_message refuses a delay that is NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51010;

EXEC rowpost.[delay_message:Sample] @headers = N'', @delay_ms = NULL;
GO
CREATE OR ALTER PROCEDURE delayed_delay_message.[test delay_message takes text that looks like SQL as text]
AS
DECLARE @text nvarchar(max) = N'''); DELETE FROM dbo.[Sample.Delayed]; --';

EXEC rowpost.[delay_message:Sample] @headers = @text, @delay_ms = 0;

DECLARE @stored nvarchar(max) = (SELECT d.Headers FROM dbo.[Sample.Delayed] AS d);
EXEC tSQLt.AssertEqualsString @Expected = @text, @Actual = @stored;
GO
CREATE OR ALTER PROCEDURE delayed_delay_message.[test delay_message is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.[delay_message:Sample] @headers = N'', @delay_ms = 0;
ROLLBACK TRANSACTION before_it;

EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.[Sample.Delayed]';
GO
CREATE OR ALTER PROCEDURE delayed_delay_message.[test delay_message leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[delay_message:Sample] @headers = N'', @delay_ms = 0;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
