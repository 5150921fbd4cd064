SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_end_job';
GO
CREATE OR ALTER PROCEDURE stream_end_job.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_end_job.[test end_job ends a job when all its parts are sent]
AS
CREATE TABLE #ended (ended bit);
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'staged';
EXEC rowpost.seal_job @job_key = N'job', @attempts = N'["r1/0"]', @messages = N'["1"]', @digests = N'["d"]', @digest = 'd';
INSERT INTO #ended (ended)
EXEC rowpost.end_job @job_key = N'job', @run = N'r1', @done = 1;
EXEC rowpost.claim_ledger @job_key = N'job', @part = 0;
EXEC rowpost.settle_ledger @job_key = N'job', @part = 0, @messages = 1, @digest = 'd';
INSERT INTO #ended (ended)
EXEC rowpost.end_job @job_key = N'job', @run = N'r1', @done = 1;

DECLARE @ended int = (SELECT COUNT(*) FROM #ended AS e WHERE e.ended = 1);
DECLARE @state nvarchar(20) = (SELECT j.state FROM rowpost.job AS j WHERE j.job_key = N'job');
DECLARE @parts int = (SELECT COUNT(*) FROM rowpost.job_part AS p WHERE p.job_key = N'job');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @ended;
EXEC tSQLt.AssertEqualsString @Expected = N'done', @Actual = @state;
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @parts;
GO
CREATE OR ALTER PROCEDURE stream_end_job.[test end_job lets a failed run end only itself]
AS
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'staged';
EXEC rowpost.end_job @job_key = N'job', @run = N'another', @done = 0;
DECLARE @before nvarchar(20) = (SELECT j.state FROM rowpost.job AS j WHERE j.job_key = N'job');
EXEC rowpost.end_job @job_key = N'job', @run = N'r1', @done = 0;

DECLARE @after nvarchar(20) = (SELECT j.state FROM rowpost.job AS j WHERE j.job_key = N'job');
EXEC tSQLt.AssertEqualsString @Expected = N'running', @Actual = @before;
EXEC tSQLt.AssertEqualsString @Expected = N'failed', @Actual = @after;
GO
CREATE OR ALTER PROCEDURE stream_end_job.[test end_job refuses a digest of 65 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51034;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 65);

EXEC rowpost.end_job @job_key = N'job', @run = N'r1', @done = 1, @digest = @long;
GO
CREATE OR ALTER PROCEDURE stream_end_job.[test end_job leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.end_job @job_key = N'job', @run = N'r1', @done = 0;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
