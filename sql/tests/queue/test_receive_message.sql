SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'queue_receive_message';
GO
CREATE OR ALTER PROCEDURE queue_receive_message.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE queue_receive_message.[test receive_message takes the one row of that version]
AS
-- Babelfish: INSERT EXEC misses the rows of an OUTPUT clause
CREATE TABLE #received (id uniqueidentifier, row_version bigint, expired bit, headers nvarchar(max), body varbinary(max));
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';
DECLARE @row_version bigint = (SELECT s.RowVersion FROM dbo.Sample AS s WHERE s.Headers = N'b');

INSERT INTO #received (id, row_version, expired, headers, body)
EXEC rowpost.[receive_message:Sample] @row_version = @row_version;

DECLARE @received nvarchar(max) = (SELECT r.headers FROM #received AS r WHERE r.row_version = @row_version);
DECLARE @left int = (SELECT COUNT(*) FROM dbo.Sample AS s WHERE s.Headers IN (N'a', N'c'));
EXEC tSQLt.AssertEqualsString @Expected = N'b', @Actual = @received;
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @left;
GO
CREATE OR ALTER PROCEDURE queue_receive_message.[test receive_message returns nothing when the row is gone]
AS
CREATE TABLE #received (id uniqueidentifier, row_version bigint, expired bit, headers nvarchar(max), body varbinary(max));
EXEC rowpost.[send_message:Sample] @headers = N'';
DECLARE @row_version bigint = (SELECT s.RowVersion FROM dbo.Sample AS s);
EXEC rowpost.[receive_message:Sample] @row_version = @row_version;

INSERT INTO #received (id, row_version, expired, headers, body)
EXEC rowpost.[receive_message:Sample] @row_version = @row_version;

EXEC tSQLt.AssertEmptyTable @TableName = N'#received';
GO
CREATE OR ALTER PROCEDURE queue_receive_message.[test receive_message flags what has expired]
AS
-- Babelfish: INSERT EXEC misses the rows of an OUTPUT clause
CREATE TABLE #received (id uniqueidentifier, row_version bigint, expired bit, headers nvarchar(max), body varbinary(max));
INSERT INTO dbo.Sample (Id, Expires, Headers, Body) VALUES (NEWID(), DATEADD(SECOND, -1, GETUTCDATE()), N'gone', 0x01);
DECLARE @row_version bigint = (SELECT s.RowVersion FROM dbo.Sample AS s);

INSERT INTO #received (id, row_version, expired, headers, body)
EXEC rowpost.[receive_message:Sample] @row_version = @row_version;

DECLARE @flagged int = (SELECT COUNT(*) FROM #received AS r WHERE r.expired = 1 AND r.body = 0x01);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @flagged;
GO
CREATE OR ALTER PROCEDURE queue_receive_message.[test receive_message takes nothing for NULL]
AS
EXEC rowpost.[send_message:Sample] @headers = N'';

EXEC rowpost.[receive_message:Sample] @row_version = NULL;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE queue_receive_message.[test receive_message is undone by the callers rollback]
AS
EXEC rowpost.[send_message:Sample] @headers = N'';
DECLARE @row_version bigint = (SELECT s.RowVersion FROM dbo.Sample AS s);
SAVE TRANSACTION before_it;

EXEC rowpost.[receive_message:Sample] @row_version = @row_version;
ROLLBACK TRANSACTION before_it;

DECLARE @after bigint = (SELECT s.RowVersion FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = @row_version, @Actual = @after;
GO
CREATE OR ALTER PROCEDURE queue_receive_message.[test receive_message leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[receive_message:Sample] @row_version = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
CREATE OR ALTER PROCEDURE queue_receive_message.[test receive_message works under SERIALIZABLE and keeps it]
AS
-- Babelfish: cannot change the isolation level within a transaction
SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;

EXEC rowpost.[receive_message:Sample] @row_version = 1;

DECLARE @level int = (SELECT s.transaction_isolation_level FROM sys.dm_exec_sessions AS s WHERE s.session_id = @@SPID);
EXEC tSQLt.AssertEquals @Expected = 4, @Actual = @level;
GO
