SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'queue_search_messages';
GO
CREATE OR ALTER PROCEDURE queue_search_messages.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE queue_search_messages.[test search_messages finds messages by a part of their headers with the newest first]
AS
CREATE TABLE #found
(
    looked_to bigint, id uniqueidentifier, row_version bigint, expired bit, expires datetime, headers nvarchar(max), body_bytes bigint
);
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"one [x] 漢"},{"ordinal":1,"headers":"other"},{"ordinal":2,"headers":"two [x] 漢"}]';
EXEC rowpost.[send_message:Sample] @headers = N'ONE [X] 漢';

INSERT INTO #found (looked_to, id, row_version, expired, expires, headers, body_bytes)
EXEC rowpost.[search_messages:Sample] @text = N'[x] 漢', @count = 10;

DECLARE @headers nvarchar(max) = (SELECT f.headers FROM #found AS f ORDER BY f.row_version DESC FOR JSON PATH);
DECLARE @both nvarchar(max) = CONCAT(JSON_VALUE(@headers, N'$[0].headers'), N', ', JSON_VALUE(@headers, N'$[1].headers'));
DECLARE @all int = (SELECT COUNT(*) FROM #found AS f WHERE f.looked_to IS NULL AND f.expired = 0);
EXEC tSQLt.AssertEqualsString @Expected = N'two [x] 漢, one [x] 漢', @Actual = @both;
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @all;
GO
CREATE OR ALTER PROCEDURE queue_search_messages.[test search_messages looks through a bounded number and says where to go on]
AS
CREATE TABLE #found
(
    looked_to bigint, id uniqueidentifier, row_version bigint, expired bit, expires datetime, headers nvarchar(max), body_bytes bigint
);
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"this"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';
DECLARE @first bigint = (SELECT s.RowVersion FROM dbo.Sample AS s WHERE s.Headers = N'this');
DECLARE @second bigint = (SELECT s.RowVersion FROM dbo.Sample AS s WHERE s.Headers = N'b');

INSERT INTO #found (looked_to, id, row_version, expired, expires, headers, body_bytes)
EXEC rowpost.[search_messages:Sample] @text = N'this', @count = 2;
INSERT INTO #found (looked_to, id, row_version, expired, expires, headers, body_bytes)
EXEC rowpost.[search_messages:Sample] @text = N'this', @count = 2, @below_row_version = @second;

DECLARE @none int = (SELECT COUNT(*) FROM #found AS f WHERE f.looked_to = @second AND f.id IS NULL AND f.row_version IS NULL AND f.expired IS NULL);
DECLARE @this int = (SELECT COUNT(*) FROM #found AS f WHERE f.looked_to IS NULL AND f.row_version = @first);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @none;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @this;
GO
CREATE OR ALTER PROCEDURE queue_search_messages.[test search_messages finds a message by its rows id]
AS
CREATE TABLE #found
(
    looked_to bigint, id uniqueidentifier, row_version bigint, expired bit, expires datetime, headers nvarchar(max), body_bytes bigint
);
EXEC rowpost.[send_message:Sample] @headers = N'', @id = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC rowpost.[send_message:Sample] @headers = N'', @id = 'aaaaaaaa-0000-0000-0000-000000000002';

INSERT INTO #found (looked_to, id, row_version, expired, expires, headers, body_bytes)
EXEC rowpost.[search_messages:Sample] @text = N'x', @count = 10, @id = 'aaaaaaaa-0000-0000-0000-000000000001';

DECLARE @ids nvarchar(max) = (SELECT LOWER(CONVERT(nvarchar(36), f.id)) FROM #found AS f);
EXEC tSQLt.AssertEqualsString @Expected = N'aaaaaaaa-0000-0000-0000-000000000001', @Actual = @ids;
GO
CREATE OR ALTER PROCEDURE queue_search_messages.[test search_messages returns one row for an empty queue]
AS
CREATE TABLE #found
(
    looked_to bigint, id uniqueidentifier, row_version bigint, expired bit, expires datetime, headers nvarchar(max), body_bytes bigint
);

INSERT INTO #found (looked_to, id, row_version, expired, expires, headers, body_bytes)
EXEC rowpost.[search_messages:Sample] @text = N'x', @count = 100000;

SELECT f.looked_to, f.row_version INTO #actual FROM #found AS f;
SELECT TOP (0) a.looked_to, a.row_version INTO #expected FROM #actual AS a;
INSERT INTO #expected (looked_to, row_version) VALUES (NULL, NULL);
EXEC tSQLt.AssertEqualsTable @Expected = N'#expected', @Actual = N'#actual';
GO
CREATE OR ALTER PROCEDURE queue_search_messages.[test search_messages says how long bodies are]
AS
CREATE TABLE #found
(
    looked_to bigint, id uniqueidentifier, row_version bigint, expired bit, expires datetime, headers nvarchar(max), body_bytes bigint
);
EXEC rowpost.[send_message:Sample] @headers = N'x', @body = 0x01020304;

INSERT INTO #found (looked_to, id, row_version, expired, expires, headers, body_bytes)
EXEC rowpost.[search_messages:Sample] @text = N'x', @count = 1;

DECLARE @cut int = (SELECT COUNT(*) FROM #found AS f WHERE f.body_bytes = 4);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @cut;
GO
CREATE OR ALTER PROCEDURE queue_search_messages.[test search_messages refuses a count out of range]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[search_messages:Sample] @text = N'x', @count = 0;
GO
CREATE OR ALTER PROCEDURE queue_search_messages.[test search_messages refuses an empty text]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[search_messages:Sample] @text = N'', @count = 1;
GO
CREATE OR ALTER PROCEDURE queue_search_messages.[test search_messages leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[search_messages:Sample] @text = N'x', @count = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
