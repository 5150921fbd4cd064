SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_clean_jobs';
GO
CREATE OR ALTER PROCEDURE stream_clean_jobs.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_clean_jobs.[test clean_jobs deletes staged messages of jobs that failed]
AS
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'staged';
EXEC rowpost.stage_messages @job_key = N'job', @attempt = N'r1/0', @messages = N'[{"ordinal":0,"headers":"a"}]';
EXEC rowpost.end_job @job_key = N'job', @run = N'r1', @done = 0;
EXEC rowpost.clean_jobs @staged_seconds = 3600, @ledger_seconds = 3600, @count = 10;
DECLARE @young int = (SELECT COUNT(*) FROM rowpost.staged_message AS s);
UPDATE s SET s.staged_at = DATEADD(HOUR, -2, s.staged_at) FROM rowpost.staged_message AS s;
EXEC rowpost.clean_jobs @staged_seconds = 3600, @ledger_seconds = 3600, @count = 10;

EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @young;
EXEC tSQLt.AssertEmptyTable @TableName = N'rowpost.staged_message';
GO
CREATE OR ALTER PROCEDURE stream_clean_jobs.[test clean_jobs keeps the parts that a job is sending and the ledger of a stream]
AS
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'staged';
EXEC rowpost.stage_messages @job_key = N'job', @attempt = N'r1/0:Sales', @messages = N'[{"ordinal":0,"headers":"a"}]';
EXEC rowpost.seal_job @job_key = N'job', @attempts = N'["r1/0"]', @messages = N'["1"]', @digests = N'["d"]', @digest = 'd';
EXEC rowpost.claim_ledger @job_key = N'a stream', @part = 7, @parts = 0;
UPDATE s SET s.staged_at = DATEADD(HOUR, -2, s.staged_at) FROM rowpost.staged_message AS s;
UPDATE l SET l.claimed_at = DATEADD(HOUR, -2, l.claimed_at) FROM rowpost.ledger AS l;
EXEC rowpost.clean_jobs @staged_seconds = 3600, @ledger_seconds = 3600, @count = 10;

DECLARE @staged int = (SELECT COUNT(*) FROM rowpost.staged_message AS s);
DECLARE @stream int = (SELECT COUNT(*) FROM rowpost.ledger AS l WHERE l.job_key = N'a stream');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @staged;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @stream;
GO
CREATE OR ALTER PROCEDURE stream_clean_jobs.[test clean_jobs refuses a count of 4001]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.clean_jobs @staged_seconds = 0, @ledger_seconds = 0, @count = 4001;
GO
CREATE OR ALTER PROCEDURE stream_clean_jobs.[test clean_jobs leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.clean_jobs @staged_seconds = 0, @ledger_seconds = 0, @count = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
