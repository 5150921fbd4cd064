SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_begin_job';
GO
CREATE OR ALTER PROCEDURE stream_begin_job.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_begin_job.[test begin_job begins a new job in the mode that was asked for]
AS
CREATE TABLE #began (state nvarchar(20), mode nvarchar(20), messages bigint, digest varchar(64));
INSERT INTO #began (state, mode, messages, digest)
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'direct';

DECLARE @began nvarchar(50) = (SELECT CONCAT(b.state, N' ', b.mode) FROM #began AS b);
EXEC tSQLt.AssertEqualsString @Expected = N'running direct', @Actual = @began;
GO
CREATE OR ALTER PROCEDURE stream_begin_job.[test begin_job stages a job that ran before]
AS
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'direct';
CREATE TABLE #began (state nvarchar(20), mode nvarchar(20), messages bigint, digest varchar(64));
INSERT INTO #began (state, mode, messages, digest)
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r2', @mode = N'direct';

DECLARE @began nvarchar(50) = (SELECT CONCAT(b.state, N' ', b.mode) FROM #began AS b);
DECLARE @run nvarchar(40) = (SELECT j.run FROM rowpost.job AS j WHERE j.job_key = N'job');
EXEC tSQLt.AssertEqualsString @Expected = N'running staged', @Actual = @began;
EXEC tSQLt.AssertEqualsString @Expected = N'r2', @Actual = @run;
GO
CREATE OR ALTER PROCEDURE stream_begin_job.[test begin_job refuses an empty key]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51032;

EXEC rowpost.begin_job @job_key = N'', @destination = N'Sample', @run = N'r1', @mode = N'staged';
GO
CREATE OR ALTER PROCEDURE stream_begin_job.[test begin_job refuses a destination of 201 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51034;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 201);

EXEC rowpost.begin_job @job_key = N'job', @destination = @long, @run = N'r1', @mode = N'direct';
GO
CREATE OR ALTER PROCEDURE stream_begin_job.[test begin_job leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'staged';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
