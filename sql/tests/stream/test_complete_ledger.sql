SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_complete_ledger';
GO
CREATE OR ALTER PROCEDURE stream_complete_ledger.[test complete_ledger makes a job of more parts another job]
AS
CREATE TABLE #claim (claimed bit, messages bigint, digest varchar(64));
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51031;
INSERT INTO #claim (claimed, messages, digest)
EXEC rowpost.claim_ledger @job_key = N'job', @part = 0, @parts = NULL;
EXEC rowpost.complete_ledger @job_key = N'job', @parts = 1;

INSERT INTO #claim (claimed, messages, digest)
EXEC rowpost.claim_ledger @job_key = N'job', @part = 1, @parts = NULL;
GO
CREATE OR ALTER PROCEDURE stream_complete_ledger.[test complete_ledger leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.complete_ledger @job_key = N'job', @parts = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
