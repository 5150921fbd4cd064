SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'queue_purge_queue';
GO
CREATE OR ALTER PROCEDURE queue_purge_queue.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE queue_purge_queue.[test purge_queue removes the oldest and says how many]
AS
CREATE TABLE #purged (purged int);
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';

INSERT INTO #purged (purged)
EXEC rowpost.[purge_queue:Sample] @count = 2;

DECLARE @purged int = (SELECT p.purged FROM #purged AS p);
DECLARE @left nvarchar(max) = (SELECT s.Headers FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @purged;
EXEC tSQLt.AssertEqualsString @Expected = N'c', @Actual = @left;
GO
CREATE OR ALTER PROCEDURE queue_purge_queue.[test purge_queue says zero for an empty queue]
AS
CREATE TABLE #purged (purged int);

INSERT INTO #purged (purged)
EXEC rowpost.[purge_queue:Sample] @count = 4000;

DECLARE @purged int = (SELECT p.purged FROM #purged AS p);
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @purged;
GO
CREATE OR ALTER PROCEDURE queue_purge_queue.[test purge_queue refuses a count of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[purge_queue:Sample] @count = 0;
GO
CREATE OR ALTER PROCEDURE queue_purge_queue.[test purge_queue refuses a count of 4001]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[purge_queue:Sample] @count = 4001;
GO
CREATE OR ALTER PROCEDURE queue_purge_queue.[test purge_queue refuses a count of NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[purge_queue:Sample] @count = NULL;
GO
CREATE OR ALTER PROCEDURE queue_purge_queue.[test purge_queue is undone by the callers rollback]
AS
INSERT INTO dbo.Sample (Id, Expires, Headers) VALUES (NEWID(), DATEADD(SECOND, -1, GETUTCDATE()), N'');
SAVE TRANSACTION before_it;

EXEC rowpost.[purge_queue:Sample] @count = 10;
ROLLBACK TRANSACTION before_it;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE queue_purge_queue.[test purge_queue leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[purge_queue:Sample] @count = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
CREATE OR ALTER PROCEDURE queue_purge_queue.[test purge_queue works under SERIALIZABLE and keeps it]
AS
-- Babelfish: cannot change the isolation level within a transaction
SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;

EXEC rowpost.[purge_queue:Sample] @count = 1;

DECLARE @level int = (SELECT s.transaction_isolation_level FROM sys.dm_exec_sessions AS s WHERE s.session_id = @@SPID);
EXEC tSQLt.AssertEquals @Expected = 4, @Actual = @level;
GO
