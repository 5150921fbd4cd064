SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_list_jobs';
GO
CREATE OR ALTER PROCEDURE stream_list_jobs.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_list_jobs.[test list_jobs returns a job with what it stored]
AS
CREATE TABLE #job
(
    job_key nvarchar(200), destination nvarchar(200), mode nvarchar(20), state nvarchar(20), started_by nvarchar(400), owner_login nvarchar(128),
    started_at datetime2(3), changed_at datetime2(3), parts bigint, messages bigint, digest varchar(64), parts_sent bigint,
    messages_sent bigint, messages_staged bigint
);
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'staged';
EXEC rowpost.stage_messages @job_key = N'job', @attempt = N'r1/0', @messages = N'[{"ordinal":0,"headers":"a"}]';
INSERT INTO #job
(
    job_key, destination, mode, state, started_by, owner_login, started_at, changed_at, parts, messages, digest, parts_sent, messages_sent,
    messages_staged
)
EXEC rowpost.list_jobs @count = 10, @job_key = N'job';

DECLARE @job nvarchar(200) = (SELECT CONCAT(j.destination, j.state, j.parts_sent, j.messages_sent, j.messages_staged) FROM #job AS j);
EXEC tSQLt.AssertEqualsString @Expected = N'Samplerunning001', @Actual = @job;
GO
CREATE OR ALTER PROCEDURE stream_list_jobs.[test list_jobs refuses a count of 0]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.list_jobs @count = 0;
GO
CREATE OR ALTER PROCEDURE stream_list_jobs.[test list_jobs leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.list_jobs @count = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
