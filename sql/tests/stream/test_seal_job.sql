SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_seal_job';
GO
CREATE OR ALTER PROCEDURE stream_seal_job.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_seal_job.[test seal_job returns the parts that are not sent yet]
AS
CREATE TABLE #part (part bigint, attempt nvarchar(100), messages bigint, digest varchar(64));
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'staged';
INSERT INTO #part (part, attempt, messages, digest)
EXEC rowpost.seal_job @job_key = N'job', @attempts = N'["r1/0","r1/1"]', @messages = N'["1","2"]', @digests = N'["d","e"]', @digest = 'f';

DECLARE @parts nvarchar(max) = (SELECT CONCAT(p.part, p.attempt, p.messages, p.digest) AS part FROM #part AS p ORDER BY p.part FOR JSON PATH);
DECLARE @both nvarchar(200) = CONCAT(JSON_VALUE(@parts, N'$[0].part'), N' ', JSON_VALUE(@parts, N'$[1].part'), JSON_VALUE(@parts, N'$[2].part'));
DECLARE @state nvarchar(50) = (SELECT CONCAT(j.state, j.parts, j.messages, j.digest) FROM rowpost.job AS j WHERE j.job_key = N'job');
EXEC tSQLt.AssertEqualsString @Expected = N'0r1/01d 1r1/12e', @Actual = @both;
EXEC tSQLt.AssertEqualsString @Expected = N'sending23f', @Actual = @state;
GO
CREATE OR ALTER PROCEDURE stream_seal_job.[test seal_job refuses other messages than those that were sealed before]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51031;
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'staged';
EXEC rowpost.seal_job @job_key = N'job', @attempts = N'["r1/0"]', @messages = N'["1"]', @digests = N'["d"]', @digest = 'd';

EXEC rowpost.seal_job @job_key = N'job', @attempts = N'["r2/0"]', @messages = N'["2"]', @digests = N'["d"]', @digest = 'd';
GO
CREATE OR ALTER PROCEDURE stream_seal_job.[test seal_job refuses parts that an earlier run sent with other messages]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51031;
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'direct';
EXEC rowpost.claim_ledger @job_key = N'job', @part = 0;
EXEC rowpost.settle_ledger @job_key = N'job', @part = 0, @messages = 1, @digest = 'e';

EXEC rowpost.seal_job @job_key = N'job', @attempts = N'["r1/0"]', @messages = N'["1"]', @digests = N'["d"]', @digest = 'd';
GO
CREATE OR ALTER PROCEDURE stream_seal_job.[test seal_job refuses a job that is not there]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51031;

EXEC rowpost.seal_job @job_key = N'job', @attempts = N'["r1/0"]', @messages = N'["1"]', @digests = N'["d"]', @digest = 'd';
GO
CREATE OR ALTER PROCEDURE stream_seal_job.[test seal_job refuses an attempt of 101 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51034;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 101);

DECLARE @attempts nvarchar(max) = CONCAT(N'["', @long, N'"]');
EXEC rowpost.seal_job @job_key = N'job', @attempts = @attempts, @messages = N'["1"]', @digests = N'["d"]', @digest = 'd';
GO
CREATE OR ALTER PROCEDURE stream_seal_job.[test seal_job leaves the callers session as it was]
AS
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'staged';
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.seal_job @job_key = N'job', @attempts = N'["r1/0"]', @messages = N'["1"]', @digests = N'["d"]', @digest = 'd';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
