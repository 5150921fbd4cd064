SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_settle_ledger';
GO
CREATE OR ALTER PROCEDURE stream_settle_ledger.[test settle_ledger writes what was sent once]
AS
CREATE TABLE #claim (claimed bit, messages bigint, digest varchar(64));
INSERT INTO #claim (claimed, messages, digest)
EXEC rowpost.claim_ledger @job_key = N'job', @part = 0, @parts = 1;

EXEC rowpost.settle_ledger @job_key = N'job', @part = 0, @messages = 7, @digest = 'abc';
EXEC rowpost.settle_ledger @job_key = N'job', @part = 0, @messages = 8, @digest = 'def';

DECLARE @right int = (SELECT COUNT(*) FROM rowpost.ledger AS l WHERE l.messages = 7 AND l.digest = 'abc');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE stream_settle_ledger.[test settle_ledger leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.settle_ledger @job_key = N'job', @part = 0, @messages = 7, @digest = 'abc';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
