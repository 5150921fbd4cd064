SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_settle_ledger';
GO
CREATE OR ALTER PROCEDURE stream_settle_ledger.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_settle_ledger.[test settle_ledger writes what was sent once]
AS
CREATE TABLE #claim (claimed bit, messages bigint, digest varchar(64));
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'direct';
INSERT INTO #claim (claimed, messages, digest)
EXEC rowpost.claim_ledger @job_key = N'job', @part = 0, @parts = 1;

EXEC rowpost.settle_ledger @job_key = N'job', @part = 0, @messages = 7, @digest = 'abc';
EXEC rowpost.settle_ledger @job_key = N'job', @part = 0, @messages = 8, @digest = 'def';

DECLARE @right int = (SELECT COUNT(*) FROM rowpost.ledger AS l WHERE l.messages = 7 AND l.digest = 'abc');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE stream_settle_ledger.[test settle_ledger refuses a part of a job that has ended]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51031;
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'direct';
EXEC rowpost.claim_ledger @job_key = N'job', @part = 0;
EXEC rowpost.end_job @job_key = N'job', @run = N'r1', @done = 0;

EXEC rowpost.settle_ledger @job_key = N'job', @part = 0, @messages = 7, @digest = 'abc';
GO
CREATE OR ALTER PROCEDURE stream_settle_ledger.[test settle_ledger refuses a digest of 65 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51034;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 65);

EXEC rowpost.settle_ledger @job_key = N'job', @part = 0, @messages = 1, @digest = @long;
GO
CREATE OR ALTER PROCEDURE stream_settle_ledger.[test settle_ledger leaves the callers session as it was]
AS
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'direct';
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.settle_ledger @job_key = N'job', @part = 0, @messages = 7, @digest = 'abc';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
