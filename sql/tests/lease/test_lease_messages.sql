SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'lease_lease_messages';
GO
CREATE OR ALTER PROCEDURE lease_lease_messages.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE lease_lease_messages.[test lease_messages moves the oldest messages and says their tokens]
AS
CREATE TABLE #leased (id uniqueidentifier, row_version bigint, expired bit, headers nvarchar(max), body varbinary(max), token uniqueidentifier);
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';

INSERT INTO #leased (id, row_version, expired, headers, body, token)
EXEC rowpost.[lease_messages:Sample] @count = 2, @owner = N'h/1/1', @seconds = 60;

DECLARE @held int = (
    SELECT COUNT(*)
    FROM #leased AS r
    INNER JOIN dbo.[Sample.Leased] AS l ON r.token = l.token
    WHERE r.headers IN (N'a', N'b') AND l.owner = N'h/1/1' AND r.row_version = l.RowVersion AND r.id = l.Id
);
DECLARE @left nvarchar(max) = (SELECT s.Headers FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @held;
EXEC tSQLt.AssertEqualsString @Expected = N'c', @Actual = @left;
GO
CREATE OR ALTER PROCEDURE lease_lease_messages.[test lease_messages begins above a row version]
AS
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';
DECLARE @first bigint = (SELECT s.RowVersion FROM dbo.Sample AS s WHERE s.Headers = N'a');

EXEC rowpost.[lease_messages:Sample] @count = 1, @after_row_version = @first, @owner = N'h/1/1', @seconds = 60;

DECLARE @held nvarchar(max) = (SELECT l.Headers FROM dbo.[Sample.Leased] AS l);
EXEC tSQLt.AssertEqualsString @Expected = N'b', @Actual = @held;
GO
CREATE OR ALTER PROCEDURE lease_lease_messages.[test lease_messages keeps all columns of the message]
AS
INSERT INTO dbo.Sample (Id, CorrelationId, ReplyToAddress, Expires, Headers, Body)
VALUES (NEWID(), 'c', 'r', '20990101', N'h', 0x0102);

EXEC rowpost.[lease_messages:Sample] @count = 1, @owner = N'h/1/1', @seconds = 60;

DECLARE @same int = (
    SELECT COUNT(*)
    FROM dbo.[Sample.Leased] AS l
    WHERE l.CorrelationId = 'c' AND l.ReplyToAddress = 'r' AND l.Expires = '20990101' AND l.Headers = N'h' AND l.Body = 0x0102
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @same;
GO
CREATE OR ALTER PROCEDURE lease_lease_messages.[test lease_messages lets the lease end the given seconds from now]
AS
EXEC rowpost.[send_message:Sample] @headers = N'';

EXEC rowpost.[lease_messages:Sample] @count = 1, @owner = N'h/1/1', @seconds = 600;

DECLARE @ends_in int = (SELECT DATEDIFF(SECOND, SYSUTCDATETIME(), l.due) FROM dbo.[Sample.Leased] AS l);
DECLARE @right int = CASE WHEN @ends_in BETWEEN 590 AND 600 THEN 1 ELSE 0 END;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE lease_lease_messages.[test lease_messages flags what has expired]
AS
CREATE TABLE #leased (id uniqueidentifier, row_version bigint, expired bit, headers nvarchar(max), body varbinary(max), token uniqueidentifier);
INSERT INTO dbo.Sample (Id, Expires, Headers) VALUES (NEWID(), DATEADD(SECOND, -1, GETUTCDATE()), N'gone');

INSERT INTO #leased (id, row_version, expired, headers, body, token)
EXEC rowpost.[lease_messages:Sample] @count = 1, @owner = N'h/1/1', @seconds = 60;

DECLARE @flagged int = (SELECT COUNT(*) FROM #leased AS r WHERE r.expired = 1);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @flagged;
GO
CREATE OR ALTER PROCEDURE lease_lease_messages.[test lease_messages refuses a count of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[lease_messages:Sample] @count = 0, @owner = N'h/1/1', @seconds = 60;
GO
CREATE OR ALTER PROCEDURE lease_lease_messages.[test lease_messages refuses a lease of no seconds]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[lease_messages:Sample] @count = 1, @owner = N'h/1/1', @seconds = 0;
GO
CREATE OR ALTER PROCEDURE lease_lease_messages.[test lease_messages refuses an owner without a name]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51034;

EXEC rowpost.[lease_messages:Sample] @count = 1, @owner = N'', @seconds = 60;
GO
CREATE OR ALTER PROCEDURE lease_lease_messages.[test lease_messages is undone by the callers rollback]
AS
EXEC rowpost.[send_message:Sample] @headers = N'';
DECLARE @before bigint = (SELECT s.RowVersion FROM dbo.Sample AS s);
SAVE TRANSACTION before_it;

EXEC rowpost.[lease_messages:Sample] @count = 1, @owner = N'h/1/1', @seconds = 60;
ROLLBACK TRANSACTION before_it;

DECLARE @after bigint = (SELECT s.RowVersion FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = @before, @Actual = @after;
EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.[Sample.Leased]';
GO
CREATE OR ALTER PROCEDURE lease_lease_messages.[test lease_messages leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[lease_messages:Sample] @count = 1, @owner = N'h/1/1', @seconds = 60;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
