SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'outbox_list_undispatched';
GO
CREATE OR ALTER PROCEDURE outbox_list_undispatched.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE outbox_list_undispatched.[test list_undispatched lists what was handled longer ago than that and has not left]
AS
CREATE TABLE #listed (endpoint nvarchar(200), message_id nvarchar(200), age_ms bigint, handled_ms bigint);
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';
EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-1', @operations = N'[]';
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-2';
UPDATE o
SET o.handled_at = DATEADD(HOUR, -1, SYSUTCDATETIME())
FROM rowpost.outbox AS o;
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-3';
EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-3', @operations = N'[]';

INSERT INTO #listed (endpoint, message_id, age_ms, handled_ms)
EXEC rowpost.list_undispatched @seconds = 60, @count = 10;

DECLARE @rows int = (SELECT COUNT(*) FROM #listed AS l);
DECLARE @right int = (SELECT COUNT(*) FROM #listed AS l WHERE l.endpoint = N'Sales' AND l.message_id = N'm-1' AND l.age_ms BETWEEN 3590000 AND 3660000);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE outbox_list_undispatched.[test list_undispatched lists the oldest first and no more than asked for]
AS
CREATE TABLE #listed (endpoint nvarchar(200), message_id nvarchar(200), age_ms bigint, handled_ms bigint);
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';
EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-1', @operations = N'[]';
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-2';
EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-2', @operations = N'[]';
UPDATE o
SET o.handled_at = DATEADD(HOUR, CASE o.message_id WHEN N'm-1' THEN -1 ELSE -2 END, SYSUTCDATETIME())
FROM rowpost.outbox AS o;

INSERT INTO #listed (endpoint, message_id, age_ms, handled_ms)
EXEC rowpost.list_undispatched @seconds = 0, @count = 1;

DECLARE @listed nvarchar(200) = (SELECT l.message_id FROM #listed AS l);
EXEC tSQLt.AssertEqualsString @Expected = N'm-2', @Actual = @listed;
GO
CREATE OR ALTER PROCEDURE outbox_list_undispatched.[test list_undispatched lists the page after a message and no other endpoints]
AS
CREATE TABLE #listed (endpoint nvarchar(200), message_id nvarchar(200), age_ms bigint, handled_ms bigint);
EXEC rowpost.record_handled @endpoint = N'Foreign', @message_id = N'm-0';
EXEC rowpost.store_operations @endpoint = N'Foreign', @message_id = N'm-0', @operations = N'[]';
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';
EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-1', @operations = N'[]';
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-2';
EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-2', @operations = N'[]';
UPDATE o
SET o.handled_at = '2026-01-01 00:00:00.123'
FROM rowpost.outbox AS o;
DECLARE @ms bigint = DATEDIFF_BIG(MILLISECOND, '19700101', '2026-01-01 00:00:00.123');

INSERT INTO #listed (endpoint, message_id, age_ms, handled_ms)
EXEC rowpost.list_undispatched @seconds = 0, @count = 10, @endpoints = N'["Sales"]',
    @after_ms = @ms, @after_endpoint = N'Sales', @after_message_id = N'm-1';

DECLARE @rows int = (SELECT COUNT(*) FROM #listed AS l);
DECLARE @listed nvarchar(200) = (SELECT MIN(l.message_id) FROM #listed AS l WHERE l.handled_ms = @ms);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
EXEC tSQLt.AssertEqualsString @Expected = N'm-2', @Actual = @listed;
GO
CREATE OR ALTER PROCEDURE outbox_list_undispatched.[test list_undispatched refuses a count of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.list_undispatched @seconds = 0, @count = 0;
GO
CREATE OR ALTER PROCEDURE outbox_list_undispatched.[test list_undispatched refuses a count of 1001]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.list_undispatched @seconds = 0, @count = 1001;
GO
CREATE OR ALTER PROCEDURE outbox_list_undispatched.[test list_undispatched refuses a count of NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.list_undispatched @seconds = 0, @count = NULL;
GO
CREATE OR ALTER PROCEDURE outbox_list_undispatched.[test list_undispatched refuses an age that is negative]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.list_undispatched @seconds = -1, @count = 1;
GO
CREATE OR ALTER PROCEDURE outbox_list_undispatched.[test list_undispatched refuses an age of NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.list_undispatched @seconds = NULL, @count = 1;
GO
CREATE OR ALTER PROCEDURE outbox_list_undispatched.[test list_undispatched leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.list_undispatched @seconds = 0, @count = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
