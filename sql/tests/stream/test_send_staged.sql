SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_send_staged';
GO
CREATE OR ALTER PROCEDURE stream_send_staged.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_send_staged.[test send_staged sends the tries that count and no others]
AS
CREATE TABLE #sent (sent bigint);
EXEC rowpost.stage_messages @job_key = N'job', @attempt = N't1', @messages = N'[{"ordinal":0,"headers":"a"}]';
EXEC rowpost.stage_messages @job_key = N'job', @attempt = N't2', @messages = N'[{"ordinal":0,"headers":"b"}]';

INSERT INTO #sent (sent)
EXEC rowpost.[send_staged:Sample] @job_key = N'job', @attempts = N'["t2"]';

DECLARE @sent bigint = (SELECT t.sent FROM #sent AS t);
DECLARE @there nvarchar(max) = (SELECT CONCAT(MIN(s.Headers), COUNT(*)) FROM dbo.Sample AS s);
DECLARE @staged int = (SELECT COUNT(*) FROM rowpost.staged_message AS s);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @sent;
EXEC tSQLt.AssertEqualsString @Expected = N'b1', @Actual = @there;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @staged;
GO
CREATE OR ALTER PROCEDURE stream_send_staged.[test send_staged leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[send_staged:Sample] @job_key = N'job', @attempts = N'[]';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
