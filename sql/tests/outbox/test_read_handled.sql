SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'outbox_read_handled';
GO
CREATE OR ALTER PROCEDURE outbox_read_handled.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE outbox_read_handled.[test read_handled finds nothing of a message that nobody has handled]
AS
CREATE TABLE #found (handled_at datetime2(3), sent bit);
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-2';
EXEC rowpost.record_handled @endpoint = N'Billing', @message_id = N'm-1';

INSERT INTO #found (handled_at, sent)
EXEC rowpost.read_handled @endpoint = N'Sales', @message_id = N'm-1';

EXEC tSQLt.AssertEmptyTable @TableName = N'#found';
GO
CREATE OR ALTER PROCEDURE outbox_read_handled.[test read_handled says whether the operations are sent]
AS
CREATE TABLE #found (handled_at datetime2(3), sent bit);
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-2';
EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-2', @operations = N'[]';

INSERT INTO #found (handled_at, sent)
EXEC rowpost.read_handled @endpoint = N'Sales', @message_id = N'm-1';
INSERT INTO #found (handled_at, sent)
EXEC rowpost.read_handled @endpoint = N'Sales', @message_id = N'm-2';

DECLARE @sent int = (SELECT COUNT(*) FROM #found AS f WHERE f.sent = 1 AND f.handled_at > DATEADD(MINUTE, -1, SYSUTCDATETIME()));
DECLARE @unsent int = (SELECT COUNT(*) FROM #found AS f WHERE f.sent = 0);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @sent;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @unsent;
GO
CREATE OR ALTER PROCEDURE outbox_read_handled.[test read_handled leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.read_handled @endpoint = N'Sales', @message_id = N'm-1';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
