SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_stage_messages';
GO
CREATE OR ALTER PROCEDURE stream_stage_messages.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_stage_messages.[test stage_messages stores messages for their job]
AS
EXEC rowpost.stage_messages
    @job_key = N'job',
    @attempt = N't1',
    @messages = N'[{"ordinal":0,"headers":"a","body_start":1,"body_length":2},{"ordinal":1,"headers":""}]',
    @bodies = 0x0102;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.staged_message AS s
    WHERE s.job_key = N'job' AND s.attempt = N't1' AND ((s.headers = N'a' AND s.body = 0x0102) OR (s.headers = N'' AND s.body IS NULL))
);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE stream_stage_messages.[test stage_messages refuses what is no JSON array]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51006;

EXEC rowpost.stage_messages @job_key = N'job', @attempt = N't1', @messages = N'{}';
GO
CREATE OR ALTER PROCEDURE stream_stage_messages.[test stage_messages refuses an empty key]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51032;

EXEC rowpost.stage_messages @job_key = N'', @attempt = N't1', @messages = N'[]';
GO
CREATE OR ALTER PROCEDURE stream_stage_messages.[test stage_messages refuses messages of an earlier run of the job]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51031;
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'staged';
EXEC rowpost.stage_messages @job_key = N'job', @attempt = N'r1/0', @messages = N'[{"ordinal":0,"headers":"a"}]';

EXEC rowpost.stage_messages @job_key = N'job', @attempt = N'r0/0', @messages = N'[{"ordinal":0,"headers":"a"}]';
GO
CREATE OR ALTER PROCEDURE stream_stage_messages.[test stage_messages refuses an attempt of 101 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51034;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 101);

EXEC rowpost.stage_messages @job_key = N'job', @attempt = @long, @messages = N'[]';
GO
CREATE OR ALTER PROCEDURE stream_stage_messages.[test stage_messages leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.stage_messages @job_key = N'job', @attempt = N't1', @messages = N'[]';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
