SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'outbox_outbox_status';
GO
CREATE OR ALTER PROCEDURE outbox_outbox_status.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE outbox_outbox_status.[test outbox_status says what has not left and for how long]
AS
CREATE TABLE #status (
    records bigint, oldest_record_at datetime2(3), undispatched int, oldest_undispatched_ms bigint, total_bytes bigint, foreign_undispatched int
);
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';
EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-1', @operations = N'[]';
UPDATE o
SET o.handled_at = DATEADD(HOUR, -1, SYSUTCDATETIME())
FROM rowpost.outbox AS o;
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-2';

INSERT INTO #status (records, oldest_record_at, undispatched, oldest_undispatched_ms, total_bytes, foreign_undispatched)
EXEC rowpost.outbox_status;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM #status AS s
    WHERE s.undispatched = 1 AND s.oldest_undispatched_ms BETWEEN 3590000 AND 3660000
      AND s.oldest_record_at < DATEADD(MINUTE, -50, SYSUTCDATETIME())
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE outbox_outbox_status.[test outbox_status counts what other endpoints have not sent by itself]
AS
CREATE TABLE #status (
    records bigint, oldest_record_at datetime2(3), undispatched int, oldest_undispatched_ms bigint, total_bytes bigint, foreign_undispatched int
);
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';
EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-1', @operations = N'[]';
EXEC rowpost.record_handled @endpoint = N'Foreign', @message_id = N'm-2';
EXEC rowpost.store_operations @endpoint = N'Foreign', @message_id = N'm-2', @operations = N'[]';
EXEC rowpost.record_handled @endpoint = N'Foreign', @message_id = N'm-3';
EXEC rowpost.store_operations @endpoint = N'Foreign', @message_id = N'm-3', @operations = N'[]';

INSERT INTO #status (records, oldest_record_at, undispatched, oldest_undispatched_ms, total_bytes, foreign_undispatched)
EXEC rowpost.outbox_status @endpoints = N'["Sales"]';

SELECT s.undispatched, s.foreign_undispatched INTO #actual FROM #status AS s;
SELECT TOP (0) a.undispatched, a.foreign_undispatched INTO #expected FROM #actual AS a;
INSERT INTO #expected (undispatched, foreign_undispatched) VALUES (1, 2);
EXEC tSQLt.AssertEqualsTable @Expected = N'#expected', @Actual = N'#actual';
GO
CREATE OR ALTER PROCEDURE outbox_outbox_status.[test outbox_status says nothing of an empty outbox]
AS
CREATE TABLE #status (
    records bigint, oldest_record_at datetime2(3), undispatched int, oldest_undispatched_ms bigint, total_bytes bigint, foreign_undispatched int
);

INSERT INTO #status (records, oldest_record_at, undispatched, oldest_undispatched_ms, total_bytes, foreign_undispatched)
EXEC rowpost.outbox_status;

SELECT s.undispatched, s.oldest_undispatched_ms, s.oldest_record_at, s.records INTO #actual FROM #status AS s;
SELECT TOP (0) a.undispatched, a.oldest_undispatched_ms, a.oldest_record_at, a.records INTO #expected FROM #actual AS a;
INSERT INTO #expected (undispatched, oldest_undispatched_ms, oldest_record_at, records) VALUES (0, NULL, NULL, 0);
EXEC tSQLt.AssertEqualsTable @Expected = N'#expected', @Actual = N'#actual';
GO
CREATE OR ALTER PROCEDURE outbox_outbox_status.[test outbox_status leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.outbox_status;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
