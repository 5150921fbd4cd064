SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'monitoring_maintain_queue';
GO
CREATE OR ALTER PROCEDURE monitoring_maintain_queue.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE monitoring_maintain_queue.[test maintain_queue keeps every message]
AS
EXEC rowpost.[send_message:Sample] @headers = N'', @body = 0x01;
DECLARE @before int = (SELECT COUNT(*) FROM dbo.Sample AS s);

EXEC rowpost.[maintain_queue:Sample] @offline = 0;

DECLARE @after int = (SELECT COUNT(*) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = @before, @Actual = @after;
GO
CREATE OR ALTER PROCEDURE monitoring_maintain_queue.[test maintain_queue says of each step whether it was done]
AS
-- Babelfish: has no lock escalation, and its stand-in changes nothing
CREATE TABLE #steps ([action] nvarchar(30), reason nvarchar(1000), [statement] nvarchar(2000), state nvarchar(10));
EXEC (N'ALTER TABLE dbo.Sample SET (LOCK_ESCALATION = TABLE);');

INSERT INTO #steps ([action], reason, [statement], state)
EXEC rowpost.[maintain_queue:Sample] @offline = 0;

DECLARE @steps int = (SELECT COUNT(*) FROM #steps AS s);
DECLARE @told int = (SELECT COUNT(*) FROM #steps AS s WHERE s.[action] = N'settings' AND s.state = N'done' AND LEN(s.reason) > 0);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @steps;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @told;
GO
CREATE OR ALTER PROCEDURE monitoring_maintain_queue.[test maintain_queue has nothing to do for a new queue]
AS
-- Babelfish: has no lock escalation, and its stand-in changes nothing
CREATE TABLE #steps ([action] nvarchar(30), reason nvarchar(1000), [statement] nvarchar(2000), state nvarchar(10));

INSERT INTO #steps ([action], reason, [statement], state)
EXEC rowpost.[maintain_queue:Sample] @offline = 0;

EXEC tSQLt.AssertEmptyTable @TableName = N'#steps';
GO
CREATE OR ALTER PROCEDURE monitoring_maintain_queue.[test maintain_queue switches lock escalation off]
AS
-- Babelfish: has no lock escalation, and its stand-in changes nothing
EXEC (N'ALTER TABLE dbo.Sample SET (LOCK_ESCALATION = TABLE);');

EXEC rowpost.[maintain_queue:Sample] @offline = 0;

DECLARE @escalation int = (SELECT t.lock_escalation FROM sys.tables AS t WHERE t.object_id = OBJECT_ID(N'dbo.Sample'));
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @escalation;
GO
CREATE OR ALTER PROCEDURE monitoring_maintain_queue.[test maintain_queue leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;
DECLARE @lock_timeout int = @@LOCK_TIMEOUT;

EXEC rowpost.[maintain_queue:Sample] @offline = 0;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
EXEC tSQLt.AssertEquals @Expected = @lock_timeout, @Actual = @@LOCK_TIMEOUT;
GO
