SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'monitoring_queue_metrics';
GO
CREATE OR ALTER PROCEDURE monitoring_queue_metrics.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE monitoring_queue_metrics.[test queue_metrics reads and removes nothing]
AS
EXEC rowpost.[send_message:Sample] @headers = N'', @body = 0x01;
DECLARE @before int = (SELECT COUNT(*) FROM dbo.Sample AS s);

EXEC rowpost.[queue_metrics:Sample];

DECLARE @after int = (SELECT COUNT(*) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = @before, @Actual = @after;
GO
CREATE OR ALTER PROCEDURE monitoring_queue_metrics.[test queue_metrics tells the age of the oldest message and counts the expired]
AS
CREATE TABLE #metrics
(
    depth bigint, oldest_age_ms bigint, enqueued bigint, dequeued bigint, expired int,
    table_bytes bigint, index_bytes bigint, dead_rows bigint, measured_at datetime2(3), leased int
);
EXEC rowpost.[send_message:Sample] @headers = N'{"NServiceBus.TimeSent":"2026-01-02 03:04:05:678901 Z"}';
EXEC rowpost.[send_message:Sample] @headers = N'';
INSERT INTO dbo.Sample (Id, Expires, Headers) VALUES (NEWID(), DATEADD(SECOND, -1, GETUTCDATE()), N'');

INSERT INTO #metrics (depth, oldest_age_ms, enqueued, dequeued, expired, table_bytes, index_bytes, dead_rows, measured_at, leased)
EXEC rowpost.[queue_metrics:Sample];

DECLARE @right int = (
    SELECT COUNT(*)
    FROM #metrics AS m
    WHERE m.expired = 1
      AND m.oldest_age_ms = DATEDIFF_BIG(MILLISECOND, CAST('2026-01-02T03:04:05.679' AS datetime2(3)), m.measured_at)
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE monitoring_queue_metrics.[test queue_metrics counts the messages that wait]
AS
CREATE TABLE #metrics
(
    depth bigint, oldest_age_ms bigint, enqueued bigint, dequeued bigint, expired int,
    table_bytes bigint, index_bytes bigint, dead_rows bigint, measured_at datetime2(3), leased int
);
EXEC rowpost.[send_message:Sample] @headers = N'';
EXEC rowpost.[send_message:Sample] @headers = N'';
DECLARE @first bigint = (SELECT MIN(s.RowVersion) FROM dbo.Sample AS s);

INSERT INTO #metrics (depth, oldest_age_ms, enqueued, dequeued, expired, table_bytes, index_bytes, dead_rows, measured_at, leased)
EXEC rowpost.[queue_metrics:Sample];
INSERT INTO #metrics (depth, oldest_age_ms, enqueued, dequeued, expired, table_bytes, index_bytes, dead_rows, measured_at, leased)
EXEC rowpost.[queue_metrics:Sample] @after_row_version = @first;

DECLARE @whole bigint = (SELECT MAX(m.depth) FROM #metrics AS m);
DECLARE @above bigint = (SELECT MIN(m.depth) FROM #metrics AS m);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @whole;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @above;
GO
CREATE OR ALTER PROCEDURE monitoring_queue_metrics.[test queue_metrics tells no age of headers without a readable time]
AS
CREATE TABLE #metrics
(
    depth bigint, oldest_age_ms bigint, enqueued bigint, dequeued bigint, expired int,
    table_bytes bigint, index_bytes bigint, dead_rows bigint, measured_at datetime2(3), leased int
);
EXEC rowpost.[send_message:Sample] @headers = N'{"NServiceBus.TimeSent":"''); DROP TABLE dbo.Sample; --"}';

INSERT INTO #metrics (depth, oldest_age_ms, enqueued, dequeued, expired, table_bytes, index_bytes, dead_rows, measured_at, leased)
EXEC rowpost.[queue_metrics:Sample];

SELECT m.oldest_age_ms, m.expired INTO #actual FROM #metrics AS m;
SELECT TOP (0) a.oldest_age_ms, a.expired INTO #expected FROM #actual AS a;
INSERT INTO #expected (oldest_age_ms, expired) VALUES (NULL, 0);
EXEC tSQLt.AssertEqualsTable @Expected = N'#expected', @Actual = N'#actual';
GO
CREATE OR ALTER PROCEDURE monitoring_queue_metrics.[test queue_metrics leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[queue_metrics:Sample];

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
