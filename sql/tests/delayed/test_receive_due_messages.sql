SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'delayed_receive_due_messages';
GO
CREATE OR ALTER PROCEDURE delayed_receive_due_messages.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE delayed_receive_due_messages.[test receive_due_messages takes what is due and is to be forwarded]
AS
-- Babelfish: INSERT EXEC misses the rows of an OUTPUT clause
CREATE TABLE #received (due datetime, headers nvarchar(max), body varbinary(max));
INSERT INTO dbo.[Sample.Delayed] (Headers, Body, Due)
VALUES
(N'{"NServiceBus.SqlServer.ForwardDestination":"Billing"}', 0x00FF, DATEADD(HOUR, -1, GETUTCDATE())),
(N'{"NServiceBus.SqlServer.ForwardDestination":"Billing"}', 0x02, DATEADD(HOUR, 1, GETUTCDATE())),
(N'{}', 0x03, DATEADD(HOUR, -1, GETUTCDATE()));

INSERT INTO #received (due, headers, body)
EXEC rowpost.[receive_due_messages:Sample] @count = 500;

DECLARE @rows int = (SELECT COUNT(*) FROM #received AS r);
DECLARE @same int = (
    SELECT COUNT(*)
    FROM #received AS r
    WHERE r.headers = N'{"NServiceBus.SqlServer.ForwardDestination":"Billing"}' AND r.body = 0x00FF AND r.due < GETUTCDATE()
);
DECLARE @left int = (SELECT COUNT(*) FROM dbo.[Sample.Delayed] AS d WHERE d.Body IN (0x02, 0x03));
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @same;
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @left;
GO
CREATE OR ALTER PROCEDURE delayed_receive_due_messages.[test receive_due_messages takes the longest due and no more than asked for]
AS
INSERT INTO dbo.[Sample.Delayed] (Headers, Body, Due)
VALUES
(N'{"NServiceBus.SqlServer.ForwardDestination":"Billing"}', 0x02, DATEADD(HOUR, -1, GETUTCDATE())),
(N'{"NServiceBus.SqlServer.ForwardDestination":"Billing"}', 0x01, DATEADD(HOUR, -2, GETUTCDATE()));

EXEC rowpost.[receive_due_messages:Sample] @count = 1;

DECLARE @left varbinary(100) = (SELECT CAST(d.Body AS varbinary(100)) FROM dbo.[Sample.Delayed] AS d);
EXEC tSQLt.AssertEquals @Expected = 0x02, @Actual = @left;
GO
CREATE OR ALTER PROCEDURE delayed_receive_due_messages.[test receive_due_messages refuses a count of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[receive_due_messages:Sample] @count = 0;
GO
CREATE OR ALTER PROCEDURE delayed_receive_due_messages.[test receive_due_messages refuses a count that is NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[receive_due_messages:Sample] @count = NULL;
GO
CREATE OR ALTER PROCEDURE delayed_receive_due_messages.[test receive_due_messages is undone by the callers rollback]
AS
INSERT INTO dbo.[Sample.Delayed] (Headers, Body, Due)
VALUES (N'{"NServiceBus.SqlServer.ForwardDestination":"Billing"}', NULL, DATEADD(HOUR, -1, GETUTCDATE()));
SAVE TRANSACTION before_it;

EXEC rowpost.[receive_due_messages:Sample] @count = 1;
ROLLBACK TRANSACTION before_it;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.[Sample.Delayed] AS d);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE delayed_receive_due_messages.[test receive_due_messages leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[receive_due_messages:Sample] @count = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
CREATE OR ALTER PROCEDURE delayed_receive_due_messages.[test receive_due_messages works under SERIALIZABLE and keeps it]
AS
-- Babelfish: cannot change the isolation level within a transaction
SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;

EXEC rowpost.[receive_due_messages:Sample] @count = 1;

DECLARE @level int = (SELECT s.transaction_isolation_level FROM sys.dm_exec_sessions AS s WHERE s.session_id = @@SPID);
EXEC tSQLt.AssertEquals @Expected = 4, @Actual = @level;
GO
