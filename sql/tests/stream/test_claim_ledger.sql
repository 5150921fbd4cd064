SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_claim_ledger';
GO
CREATE OR ALTER PROCEDURE stream_claim_ledger.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_claim_ledger.[test claim_ledger claims a part once and says what it was]
AS
CREATE TABLE #claim (claimed bit, messages bigint, digest varchar(64));
EXEC rowpost.begin_job @job_key = N'job', @destination = N'Sample', @run = N'r1', @mode = N'direct';
INSERT INTO #claim (claimed, messages, digest)
EXEC rowpost.claim_ledger @job_key = N'job', @part = 0, @parts = 2;
EXEC rowpost.settle_ledger @job_key = N'job', @part = 0, @messages = 7, @digest = 'abc';

INSERT INTO #claim (claimed, messages, digest)
EXEC rowpost.claim_ledger @job_key = N'job', @part = 0, @parts = 2;

DECLARE @again int = (SELECT COUNT(*) FROM #claim AS c WHERE c.claimed = 0 AND c.messages = 7 AND c.digest = 'abc');
DECLARE @first int = (SELECT COUNT(*) FROM #claim AS c WHERE c.claimed = 1 AND c.messages IS NULL);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @again;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @first;
GO
CREATE OR ALTER PROCEDURE stream_claim_ledger.[test claim_ledger refuses a job of another number of parts]
AS
CREATE TABLE #claim (claimed bit, messages bigint, digest varchar(64));
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51031;
INSERT INTO #claim (claimed, messages, digest)
EXEC rowpost.claim_ledger @job_key = N'job', @part = 0, @parts = 2;

EXEC rowpost.claim_ledger @job_key = N'job', @part = 0, @parts = 3;
GO
CREATE OR ALTER PROCEDURE stream_claim_ledger.[test claim_ledger refuses a number of parts where the first run said none]
AS
CREATE TABLE #claim (claimed bit, messages bigint, digest varchar(64));
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51031;
INSERT INTO #claim (claimed, messages, digest)
EXEC rowpost.claim_ledger @job_key = N'job', @part = 0;

EXEC rowpost.claim_ledger @job_key = N'job', @part = 1, @parts = 3;
GO
CREATE OR ALTER PROCEDURE stream_claim_ledger.[test claim_ledger refuses a part beyond their number]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51032;

EXEC rowpost.claim_ledger @job_key = N'job', @part = 2, @parts = 2;
GO
CREATE OR ALTER PROCEDURE stream_claim_ledger.[test claim_ledger claims parts that follow one another in order]
AS
CREATE TABLE #claim (claimed bit, messages bigint, digest varchar(64));
INSERT INTO #claim (claimed, messages, digest)
EXEC rowpost.claim_ledger @job_key = N'job', @part = 1, @parts = 0;
INSERT INTO #claim (claimed, messages, digest)
EXEC rowpost.claim_ledger @job_key = N'job', @part = 3, @parts = 0;
INSERT INTO #claim (claimed, messages, digest)
EXEC rowpost.claim_ledger @job_key = N'job', @part = 2, @parts = 0;

DECLARE @claimed int = (SELECT COUNT(*) FROM #claim AS c WHERE c.claimed = 1);
DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.ledger AS l WHERE l.job_key = N'job' AND l.part = 3);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @claimed;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE stream_claim_ledger.[test claim_ledger leaves the transaction usable if the part was sent before]
AS
CREATE TABLE #claim (claimed bit, messages bigint, digest varchar(64));
INSERT INTO #claim (claimed, messages, digest)
EXEC rowpost.claim_ledger @job_key = N'job', @part = 0, @parts = 2;
INSERT INTO #claim (claimed, messages, digest)
EXEC rowpost.claim_ledger @job_key = N'job', @part = 0, @parts = 2;

INSERT INTO #claim (claimed, messages, digest)
EXEC rowpost.claim_ledger @job_key = N'job', @part = 1, @parts = 2;

DECLARE @state int = XACT_STATE();
DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.ledger AS l WHERE l.job_key = N'job');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @state;
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE stream_claim_ledger.[test claim_ledger refuses an empty key]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51032;

EXEC rowpost.claim_ledger @job_key = N'', @part = 0;
GO
CREATE OR ALTER PROCEDURE stream_claim_ledger.[test claim_ledger leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.claim_ledger @job_key = N'job', @part = 0;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
