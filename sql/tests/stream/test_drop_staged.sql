SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_drop_staged';
GO
CREATE OR ALTER PROCEDURE stream_drop_staged.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_drop_staged.[test drop_staged deletes what one job staged]
AS
CREATE TABLE #dropped (dropped bigint);
EXEC rowpost.stage_messages @job_key = N'job', @attempt = N't1', @messages = N'[{"ordinal":0,"headers":"a"}]';
EXEC rowpost.stage_messages @job_key = N'job', @attempt = N't2', @messages = N'[{"ordinal":0,"headers":"b"}]';
EXEC rowpost.stage_messages @job_key = N'other', @attempt = N't1', @messages = N'[{"ordinal":0,"headers":"c"}]';

INSERT INTO #dropped (dropped)
EXEC rowpost.drop_staged @job_key = N'job';

DECLARE @dropped bigint = (SELECT d.dropped FROM #dropped AS d);
DECLARE @left nvarchar(200) = (SELECT MAX(s.job_key) FROM rowpost.staged_message AS s);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @dropped;
EXEC tSQLt.AssertEqualsString @Expected = N'other', @Actual = @left;
GO
CREATE OR ALTER PROCEDURE stream_drop_staged.[test drop_staged keeps the parts that a job is sending]
AS
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'staged';
EXEC rowpost.stage_messages @job_key = N'job', @attempt = N'r1/0:Sales', @messages = N'[{"ordinal":0,"headers":"a"}]';
EXEC rowpost.stage_messages @job_key = N'job', @attempt = N'r1/1:Sales', @messages = N'[{"ordinal":0,"headers":"a"}]';
EXEC rowpost.seal_job @job_key = N'job', @attempts = N'["r1/0"]', @messages = N'["1"]', @digests = N'["d"]', @digest = 'd';

EXEC rowpost.drop_staged @job_key = N'job';

DECLARE @left nvarchar(100) = (SELECT s.attempt FROM rowpost.staged_message AS s);
EXEC tSQLt.AssertEqualsString @Expected = N'r1/0:Sales', @Actual = @left;
GO
CREATE OR ALTER PROCEDURE stream_drop_staged.[test drop_staged deletes what one run of a job staged]
AS
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'staged';
EXEC rowpost.stage_messages @job_key = N'job', @attempt = N'r1/0', @messages = N'[{"ordinal":0,"headers":"a"}]';
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r2', @mode = N'staged';
EXEC rowpost.stage_messages @job_key = N'job', @attempt = N'r2/0', @messages = N'[{"ordinal":0,"headers":"a"}]';

EXEC rowpost.drop_staged @job_key = N'job', @run = N'r1';

DECLARE @left nvarchar(100) = (SELECT s.attempt FROM rowpost.staged_message AS s);
EXEC tSQLt.AssertEqualsString @Expected = N'r2/0', @Actual = @left;
GO
CREATE OR ALTER PROCEDURE stream_drop_staged.[test drop_staged refuses a negative age]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.drop_staged @seconds = -1;
GO
CREATE OR ALTER PROCEDURE stream_drop_staged.[test drop_staged leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.drop_staged;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
