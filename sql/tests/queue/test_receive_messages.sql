SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'queue_receive_messages';
GO
CREATE OR ALTER PROCEDURE queue_receive_messages.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE queue_receive_messages.[test receive_messages returns a row as it was stored]
AS
-- Babelfish: INSERT EXEC misses the rows of an OUTPUT clause
CREATE TABLE #received (id uniqueidentifier, row_version bigint, expired bit, headers nvarchar(max), body varbinary(max));
DECLARE @id uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC rowpost.[send_message:Sample] @headers = N'{"a":"漢🚀"}', @body = 0x00FF, @id = @id;
DECLARE @row_version bigint = (SELECT s.RowVersion FROM dbo.Sample AS s);

INSERT INTO #received (id, row_version, expired, headers, body)
EXEC rowpost.[receive_messages:Sample] @count = 1;

DECLARE @same int = (
    SELECT COUNT(*)
    FROM #received AS r
    WHERE r.id = @id AND r.row_version = @row_version AND r.expired = 0 AND r.headers = N'{"a":"漢🚀"}' AND r.body = 0x00FF
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @same;
GO
CREATE OR ALTER PROCEDURE queue_receive_messages.[test receive_messages takes the oldest and leaves the others]
AS
-- Babelfish: INSERT EXEC misses the rows of an OUTPUT clause
CREATE TABLE #received (id uniqueidentifier, row_version bigint, expired bit, headers nvarchar(max), body varbinary(max));
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';

INSERT INTO #received (id, row_version, expired, headers, body)
EXEC rowpost.[receive_messages:Sample] @count = 2;

DECLARE @taken int = (SELECT COUNT(*) FROM #received AS r WHERE r.headers IN (N'a', N'b'));
DECLARE @left nvarchar(max) = (SELECT s.Headers FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @taken;
EXEC tSQLt.AssertEqualsString @Expected = N'c', @Actual = @left;
GO
CREATE OR ALTER PROCEDURE queue_receive_messages.[test receive_messages returns nothing from an empty queue]
AS
CREATE TABLE #received (id uniqueidentifier, row_version bigint, expired bit, headers nvarchar(max), body varbinary(max));

INSERT INTO #received (id, row_version, expired, headers, body)
EXEC rowpost.[receive_messages:Sample] @count = 500;

EXEC tSQLt.AssertEmptyTable @TableName = N'#received';
GO
CREATE OR ALTER PROCEDURE queue_receive_messages.[test receive_messages looks after the given row version only]
AS
-- Babelfish: INSERT EXEC misses the rows of an OUTPUT clause
CREATE TABLE #received (id uniqueidentifier, row_version bigint, expired bit, headers nvarchar(max), body varbinary(max));
EXEC rowpost.[send_message:Sample] @headers = N'below';
DECLARE @after_row_version bigint = (SELECT s.RowVersion FROM dbo.Sample AS s);
EXEC rowpost.[send_message:Sample] @headers = N'above';

INSERT INTO #received (id, row_version, expired, headers, body)
EXEC rowpost.[receive_messages:Sample] @count = 10, @after_row_version = @after_row_version;

DECLARE @received nvarchar(max) = (SELECT r.headers FROM #received AS r);
EXEC tSQLt.AssertEqualsString @Expected = N'above', @Actual = @received;
GO
CREATE OR ALTER PROCEDURE queue_receive_messages.[test receive_messages finds a row version below zero]
AS
-- Babelfish: INSERT EXEC misses the rows of an OUTPUT clause
CREATE TABLE #received (id uniqueidentifier, row_version bigint, expired bit, headers nvarchar(max), body varbinary(max));
SET IDENTITY_INSERT dbo.Sample ON;
INSERT INTO dbo.Sample (Id, Headers, RowVersion) VALUES (NEWID(), N'reseeded', -5);
SET IDENTITY_INSERT dbo.Sample OFF;

INSERT INTO #received (id, row_version, expired, headers, body)
EXEC rowpost.[receive_messages:Sample] @count = 1;

DECLARE @row_version bigint = (SELECT r.row_version FROM #received AS r);
EXEC tSQLt.AssertEquals @Expected = -5, @Actual = @row_version;
GO
CREATE OR ALTER PROCEDURE queue_receive_messages.[test receive_messages flags what has expired]
AS
-- Babelfish: INSERT EXEC misses the rows of an OUTPUT clause
CREATE TABLE #received (id uniqueidentifier, row_version bigint, expired bit, headers nvarchar(max), body varbinary(max));
INSERT INTO dbo.Sample (Id, Expires, Headers)
VALUES
(NEWID(), DATEADD(SECOND, -1, GETUTCDATE()), N'gone'),
(NEWID(), DATEADD(MINUTE, 5, GETUTCDATE()), N'living'),
(NEWID(), NULL, N'unlimited');

INSERT INTO #received (id, row_version, expired, headers, body)
EXEC rowpost.[receive_messages:Sample] @count = 3;

DECLARE @expired nvarchar(max) = (SELECT r.headers FROM #received AS r WHERE r.expired = 1);
DECLARE @living int = (SELECT COUNT(*) FROM #received AS r WHERE r.expired = 0);
EXEC tSQLt.AssertEqualsString @Expected = N'gone', @Actual = @expired;
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @living;
GO
CREATE OR ALTER PROCEDURE queue_receive_messages.[test receive_messages takes five hundred at once]
AS
-- Babelfish: INSERT EXEC misses the rows of an OUTPUT clause
CREATE TABLE #received (id uniqueidentifier, row_version bigint, expired bit, headers nvarchar(max), body varbinary(max));
DECLARE @sent int = 0;
WHILE @sent < 510
BEGIN
    EXEC rowpost.[send_message:Sample] @headers = N'';
    SET @sent = @sent + 1;
END;

INSERT INTO #received (id, row_version, expired, headers, body)
EXEC rowpost.[receive_messages:Sample] @count = 500;

DECLARE @taken int = (SELECT COUNT(*) FROM #received AS r);
DECLARE @left int = (SELECT COUNT(*) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 500, @Actual = @taken;
EXEC tSQLt.AssertEquals @Expected = 10, @Actual = @left;
GO
CREATE OR ALTER PROCEDURE queue_receive_messages.[test receive_messages refuses a count of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[receive_messages:Sample] @count = 0;
GO
CREATE OR ALTER PROCEDURE queue_receive_messages.[test receive_messages refuses a count of 501]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[receive_messages:Sample] @count = 501;
GO
CREATE OR ALTER PROCEDURE queue_receive_messages.[test receive_messages refuses a count of NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[receive_messages:Sample] @count = NULL;
GO
CREATE OR ALTER PROCEDURE queue_receive_messages.[test receive_messages is undone by the callers rollback]
AS
CREATE TABLE #received (id uniqueidentifier, row_version bigint, expired bit, headers nvarchar(max), body varbinary(max));
EXEC rowpost.[send_message:Sample] @headers = N'back';
DECLARE @before bigint = (SELECT s.RowVersion FROM dbo.Sample AS s);
SAVE TRANSACTION before_it;

INSERT INTO #received (id, row_version, expired, headers, body)
EXEC rowpost.[receive_messages:Sample] @count = 1;
ROLLBACK TRANSACTION before_it;

DECLARE @after bigint = (SELECT s.RowVersion FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = @before, @Actual = @after;
GO
CREATE OR ALTER PROCEDURE queue_receive_messages.[test receive_messages leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[receive_messages:Sample] @count = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
CREATE OR ALTER PROCEDURE queue_receive_messages.[test receive_messages works under SERIALIZABLE and keeps it]
AS
-- Babelfish: cannot change the isolation level within a transaction
SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;
EXEC rowpost.[send_message:Sample] @headers = N'';

EXEC rowpost.[receive_messages:Sample] @count = 1;

DECLARE @level int = (SELECT s.transaction_isolation_level FROM sys.dm_exec_sessions AS s WHERE s.session_id = @@SPID);
EXEC tSQLt.AssertEquals @Expected = 4, @Actual = @level;
EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.Sample';
GO
