SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'delayed_move_due_messages';
GO
CREATE OR ALTER PROCEDURE delayed_move_due_messages.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE delayed_move_due_messages.[test move_due_messages takes the longest due and no more than asked for]
AS
INSERT INTO dbo.[Sample.Delayed] (Headers, Body, Due)
VALUES
(N'third', NULL, DATEADD(HOUR, -1, GETUTCDATE())),
(N'first', NULL, DATEADD(HOUR, -3, GETUTCDATE())),
(N'second', NULL, DATEADD(HOUR, -2, GETUTCDATE()));

EXEC rowpost.[move_due_messages:Sample] @count = 2;

DECLARE @moved int = (SELECT COUNT(*) FROM dbo.Sample AS s);
DECLARE @first nvarchar(max) = (SELECT TOP (1) s.Headers FROM dbo.Sample AS s ORDER BY s.RowVersion);
DECLARE @left nvarchar(max) = (SELECT d.Headers FROM dbo.[Sample.Delayed] AS d);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @moved;
EXEC tSQLt.AssertEqualsString @Expected = N'first', @Actual = @first;
EXEC tSQLt.AssertEqualsString @Expected = N'third', @Actual = @left;
GO
CREATE OR ALTER PROCEDURE delayed_move_due_messages.[test move_due_messages leaves what is not due or is to be forwarded]
AS
INSERT INTO dbo.[Sample.Delayed] (Headers, Body, Due)
VALUES
(N'later', NULL, DATEADD(HOUR, 1, GETUTCDATE())),
(N'{"NServiceBus.SqlServer.ForwardDestination":"Billing"}', NULL, DATEADD(HOUR, -1, GETUTCDATE()));

EXEC rowpost.[move_due_messages:Sample] @count = 500;

DECLARE @left int = (SELECT COUNT(*) FROM dbo.[Sample.Delayed] AS d);
EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.Sample';
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @left;
GO
CREATE OR ALTER PROCEDURE delayed_move_due_messages.[test move_due_messages says what it moved and when the next is due]
AS
-- Babelfish: INSERT EXEC takes no procedure that calls another one
CREATE TABLE #said (moved int, forwards int, next_due_ms bigint);
INSERT INTO dbo.[Sample.Delayed] (Headers, Body, Due)
VALUES
(N'due', NULL, DATEADD(HOUR, -1, GETUTCDATE())),
(N'later', NULL, DATEADD(HOUR, 1, GETUTCDATE()));

INSERT INTO #said (moved, forwards, next_due_ms)
EXEC rowpost.[move_due_messages:Sample] @count = 500;

DECLARE @right int = (
    SELECT COUNT(*) FROM #said AS s WHERE s.moved = 1 AND s.forwards = 0 AND s.next_due_ms BETWEEN 3540000 AND 3600000
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE delayed_move_due_messages.[test move_due_messages moves text that looks like SQL as text]
AS
DECLARE @text nvarchar(max) = N'''); DELETE FROM dbo.Sample; --';
INSERT INTO dbo.[Sample.Delayed] (Headers, Body, Due) VALUES (@text, 0x00FF, DATEADD(HOUR, -1, GETUTCDATE()));

EXEC rowpost.[move_due_messages:Sample] @count = 1;

DECLARE @stored nvarchar(max) = (SELECT s.Headers FROM dbo.Sample AS s WHERE s.Body = 0x00FF);
EXEC tSQLt.AssertEqualsString @Expected = @text, @Actual = @stored;
GO
CREATE OR ALTER PROCEDURE delayed_move_due_messages.[test move_due_messages refuses a count of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[move_due_messages:Sample] @count = 0;
GO
CREATE OR ALTER PROCEDURE delayed_move_due_messages.[test move_due_messages refuses a count above five hundred]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[move_due_messages:Sample] @count = 501;
GO
CREATE OR ALTER PROCEDURE delayed_move_due_messages.[test move_due_messages is undone by the callers rollback]
AS
INSERT INTO dbo.[Sample.Delayed] (Headers, Body, Due) VALUES (N'', NULL, DATEADD(HOUR, -1, GETUTCDATE()));
SAVE TRANSACTION before_it;

EXEC rowpost.[move_due_messages:Sample] @count = 1;
ROLLBACK TRANSACTION before_it;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.[Sample.Delayed] AS d);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE delayed_move_due_messages.[test move_due_messages leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[move_due_messages:Sample] @count = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
CREATE OR ALTER PROCEDURE delayed_move_due_messages.[test move_due_messages works under SERIALIZABLE and keeps it]
AS
-- Babelfish: cannot change the isolation level within a transaction
SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;

EXEC rowpost.[move_due_messages:Sample] @count = 1;

DECLARE @level int = (SELECT s.transaction_isolation_level FROM sys.dm_exec_sessions AS s WHERE s.session_id = @@SPID);
EXEC tSQLt.AssertEquals @Expected = 4, @Actual = @level;
GO
