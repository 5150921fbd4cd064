SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'queue_peek_queue';
GO
CREATE OR ALTER PROCEDURE queue_peek_queue.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE queue_peek_queue.[test peek_queue counts what waits]
AS
CREATE TABLE #peeked (waiting int);
EXEC rowpost.[send_message:Sample] @headers = N'';
EXEC rowpost.[send_message:Sample] @headers = N'';

INSERT INTO #peeked (waiting)
EXEC rowpost.[peek_queue:Sample] @count = 10;

DECLARE @waiting int = (SELECT p.waiting FROM #peeked AS p);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @waiting;
GO
CREATE OR ALTER PROCEDURE queue_peek_queue.[test peek_queue says zero for an empty queue]
AS
CREATE TABLE #peeked (waiting int);

INSERT INTO #peeked (waiting)
EXEC rowpost.[peek_queue:Sample] @count = 10000;

DECLARE @waiting int = (SELECT p.waiting FROM #peeked AS p);
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @waiting;
GO
CREATE OR ALTER PROCEDURE queue_peek_queue.[test peek_queue stops counting where it is told]
AS
CREATE TABLE #peeked (waiting int);
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":""},{"ordinal":1,"headers":""},{"ordinal":2,"headers":""}]';

INSERT INTO #peeked (waiting)
EXEC rowpost.[peek_queue:Sample] @count = 2;

DECLARE @waiting int = (SELECT p.waiting FROM #peeked AS p);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @waiting;
GO
CREATE OR ALTER PROCEDURE queue_peek_queue.[test peek_queue counts after the given row version only]
AS
CREATE TABLE #peeked (waiting int);
EXEC rowpost.[send_message:Sample] @headers = N'';
DECLARE @after_row_version bigint = (SELECT s.RowVersion FROM dbo.Sample AS s);
EXEC rowpost.[send_message:Sample] @headers = N'';

INSERT INTO #peeked (waiting)
EXEC rowpost.[peek_queue:Sample] @count = 10, @after_row_version = @after_row_version;

DECLARE @waiting int = (SELECT p.waiting FROM #peeked AS p);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @waiting;
GO
CREATE OR ALTER PROCEDURE queue_peek_queue.[test peek_queue takes nothing]
AS
EXEC rowpost.[send_message:Sample] @headers = N'';

EXEC rowpost.[peek_queue:Sample] @count = 10;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE queue_peek_queue.[test peek_queue refuses a count of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[peek_queue:Sample] @count = 0;
GO
CREATE OR ALTER PROCEDURE queue_peek_queue.[test peek_queue refuses a count of 10001]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[peek_queue:Sample] @count = 10001;
GO
CREATE OR ALTER PROCEDURE queue_peek_queue.[test peek_queue refuses a count of NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[peek_queue:Sample] @count = NULL;
GO
CREATE OR ALTER PROCEDURE queue_peek_queue.[test peek_queue leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[peek_queue:Sample] @count = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
CREATE OR ALTER PROCEDURE queue_peek_queue.[test peek_queue works under SERIALIZABLE and keeps it]
AS
-- Babelfish: cannot change the isolation level within a transaction
SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;

EXEC rowpost.[peek_queue:Sample] @count = 1;

DECLARE @level int = (SELECT s.transaction_isolation_level FROM sys.dm_exec_sessions AS s WHERE s.session_id = @@SPID);
EXEC tSQLt.AssertEquals @Expected = 4, @Actual = @level;
GO
