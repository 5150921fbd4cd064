SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_forget_job';
GO
CREATE OR ALTER PROCEDURE stream_forget_job.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_forget_job.[test forget_job deletes a job and says what it sent]
AS
CREATE TABLE #gone (state nvarchar(20), parts bigint, messages bigint);
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'direct';
EXEC rowpost.claim_ledger @job_key = N'job', @part = 0;
EXEC rowpost.settle_ledger @job_key = N'job', @part = 0, @messages = 7, @digest = 'd';
INSERT INTO #gone (state, parts, messages)
EXEC rowpost.forget_job @job_key = N'job';

DECLARE @gone nvarchar(50) = (SELECT CONCAT(g.state, g.parts, g.messages) FROM #gone AS g);
DECLARE @left int = (SELECT COUNT(*) FROM rowpost.ledger AS l WHERE l.job_key = N'job') + (SELECT COUNT(*) FROM rowpost.job AS j);
EXEC tSQLt.AssertEqualsString @Expected = N'running17', @Actual = @gone;
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @left;
GO
CREATE OR ALTER PROCEDURE stream_forget_job.[test forget_job returns nothing for a job that is not there]
AS
CREATE TABLE #gone (state nvarchar(20), parts bigint, messages bigint);
INSERT INTO #gone (state, parts, messages)
EXEC rowpost.forget_job @job_key = N'job';

EXEC tSQLt.AssertEmptyTable @TableName = N'#gone';
GO
CREATE OR ALTER PROCEDURE stream_forget_job.[test forget_job leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.forget_job @job_key = N'job';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
