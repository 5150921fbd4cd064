SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'queue_browse_messages';
GO
CREATE OR ALTER PROCEDURE queue_browse_messages.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE queue_browse_messages.[test browse_messages returns rows as stored and takes none]
AS
CREATE TABLE #browsed
(
    id uniqueidentifier, row_version bigint, expired bit, expires datetime, headers nvarchar(max), body_bytes bigint
);
DECLARE @id uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC rowpost.[send_message:Sample] @headers = N'{"a":"漢"}', @body = 0x00FF, @id = @id;

INSERT INTO #browsed (id, row_version, expired, expires, headers, body_bytes)
EXEC rowpost.[browse_messages:Sample] @count = 10;

DECLARE @same int = (
    SELECT COUNT(*)
    FROM #browsed AS b
    INNER JOIN dbo.Sample AS s
        ON b.row_version = s.RowVersion
    WHERE b.id = @id AND b.expired = 0 AND b.expires IS NULL AND b.headers = N'{"a":"漢"}' AND b.body_bytes = 2
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @same;
GO
CREATE OR ALTER PROCEDURE queue_browse_messages.[test browse_messages pages by row version with the oldest first]
AS
CREATE TABLE #browsed
(
    id uniqueidentifier, row_version bigint, expired bit, expires datetime, headers nvarchar(max), body_bytes bigint
);
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';
DECLARE @after_row_version bigint = (SELECT s.RowVersion FROM dbo.Sample AS s WHERE s.Headers = N'a');

INSERT INTO #browsed (id, row_version, expired, expires, headers, body_bytes)
EXEC rowpost.[browse_messages:Sample] @count = 1, @after_row_version = @after_row_version;

DECLARE @page nvarchar(max) = (SELECT b.headers FROM #browsed AS b);
EXEC tSQLt.AssertEqualsString @Expected = N'b', @Actual = @page;
GO
CREATE OR ALTER PROCEDURE queue_browse_messages.[test browse_messages says zero bytes for a NULL body]
AS
CREATE TABLE #browsed
(
    id uniqueidentifier, row_version bigint, expired bit, expires datetime, headers nvarchar(max), body_bytes bigint
);
EXEC rowpost.[send_message:Sample] @headers = N'';

INSERT INTO #browsed (id, row_version, expired, expires, headers, body_bytes)
EXEC rowpost.[browse_messages:Sample] @count = 1;

DECLARE @nulls int = (SELECT COUNT(*) FROM #browsed AS b WHERE b.body_bytes = 0);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @nulls;
GO
CREATE OR ALTER PROCEDURE queue_browse_messages.[test browse_messages shows when a message expires]
AS
CREATE TABLE #browsed
(
    id uniqueidentifier, row_version bigint, expired bit, expires datetime, headers nvarchar(max), body_bytes bigint
);
DECLARE @expires datetime = DATEADD(MINUTE, -1, GETUTCDATE());
INSERT INTO dbo.Sample (Id, Expires, Headers) VALUES (NEWID(), @expires, N'');

INSERT INTO #browsed (id, row_version, expired, expires, headers, body_bytes)
EXEC rowpost.[browse_messages:Sample] @count = 1;

SELECT b.expired, b.expires INTO #actual FROM #browsed AS b;
SELECT TOP (0) a.expired, a.expires INTO #expected FROM #actual AS a;
INSERT INTO #expected (expired, expires) VALUES (1, @expires);
EXEC tSQLt.AssertEqualsTable @Expected = N'#expected', @Actual = N'#actual';
GO
CREATE OR ALTER PROCEDURE queue_browse_messages.[test browse_messages refuses a count of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[browse_messages:Sample] @count = 0;
GO
CREATE OR ALTER PROCEDURE queue_browse_messages.[test browse_messages refuses a count of 1001]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[browse_messages:Sample] @count = 1001;
GO
CREATE OR ALTER PROCEDURE queue_browse_messages.[test browse_messages leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[browse_messages:Sample] @count = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
CREATE OR ALTER PROCEDURE queue_browse_messages.[test browse_messages works under SERIALIZABLE and keeps it]
AS
-- Babelfish: cannot change the isolation level within a transaction
SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;

EXEC rowpost.[browse_messages:Sample] @count = 1;

DECLARE @level int = (SELECT s.transaction_isolation_level FROM sys.dm_exec_sessions AS s WHERE s.session_id = @@SPID);
EXEC tSQLt.AssertEquals @Expected = 4, @Actual = @level;
GO
