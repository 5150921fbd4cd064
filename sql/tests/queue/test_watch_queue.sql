SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'queue_watch_queue';
GO
CREATE OR ALTER PROCEDURE queue_watch_queue.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE queue_watch_queue.[test watch_queue counts what waits]
AS
CREATE TABLE #watched (waiting int, next_due_ms bigint, is_paused bit, worker_limit int, reason nvarchar(400), changed_by nvarchar(128));
EXEC rowpost.[send_message:Sample] @headers = N'';
EXEC rowpost.[send_message:Sample] @headers = N'';

INSERT INTO #watched (waiting, next_due_ms, is_paused, worker_limit, reason, changed_by)
EXEC rowpost.[watch_queue:Sample] @count = 10;

DECLARE @waiting int = (SELECT w.waiting FROM #watched AS w);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @waiting;
GO
CREATE OR ALTER PROCEDURE queue_watch_queue.[test watch_queue says zero for an empty queue]
AS
CREATE TABLE #watched (waiting int, next_due_ms bigint, is_paused bit, worker_limit int, reason nvarchar(400), changed_by nvarchar(128));

INSERT INTO #watched (waiting, next_due_ms, is_paused, worker_limit, reason, changed_by)
EXEC rowpost.[watch_queue:Sample] @count = 10000;

DECLARE @waiting int = (SELECT w.waiting FROM #watched AS w);
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @waiting;
GO
CREATE OR ALTER PROCEDURE queue_watch_queue.[test watch_queue stops counting where it is told]
AS
CREATE TABLE #watched (waiting int, next_due_ms bigint, is_paused bit, worker_limit int, reason nvarchar(400), changed_by nvarchar(128));
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":""},{"ordinal":1,"headers":""},{"ordinal":2,"headers":""}]';

INSERT INTO #watched (waiting, next_due_ms, is_paused, worker_limit, reason, changed_by)
EXEC rowpost.[watch_queue:Sample] @count = 2;

DECLARE @waiting int = (SELECT w.waiting FROM #watched AS w);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @waiting;
GO
CREATE OR ALTER PROCEDURE queue_watch_queue.[test watch_queue counts what waits for one that sleeps too]
AS
CREATE TABLE #watched (waiting int, next_due_ms bigint, is_paused bit, worker_limit int, reason nvarchar(400), changed_by nvarchar(128));
EXEC rowpost.[send_message:Sample] @headers = N'';

INSERT INTO #watched (waiting, next_due_ms, is_paused, worker_limit, reason, changed_by)
EXEC rowpost.[watch_queue:Sample] @count = 10, @wake_up_ttl_ms = 1000;

DECLARE @waiting int = (SELECT w.waiting FROM #watched AS w);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @waiting;
GO
CREATE OR ALTER PROCEDURE queue_watch_queue.[test watch_queue says when the next delayed message is due]
AS
CREATE TABLE #watched (waiting int, next_due_ms bigint, is_paused bit, worker_limit int, reason nvarchar(400), changed_by nvarchar(128));
INSERT INTO dbo.[Sample.Delayed] (Headers, Body, Due)
VALUES
(N'', NULL, DATEADD(DAY, 100, GETUTCDATE())),
(N'', NULL, DATEADD(HOUR, 1, GETUTCDATE()));

INSERT INTO #watched (waiting, next_due_ms, is_paused, worker_limit, reason, changed_by)
EXEC rowpost.[watch_queue:Sample] @count = 10;

DECLARE @right int = (SELECT COUNT(*) FROM #watched AS w WHERE w.waiting = 0 AND w.next_due_ms BETWEEN 3540000 AND 3600000);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE queue_watch_queue.[test watch_queue says zero for a delayed message that is due]
AS
CREATE TABLE #watched (waiting int, next_due_ms bigint, is_paused bit, worker_limit int, reason nvarchar(400), changed_by nvarchar(128));
INSERT INTO dbo.[Sample.Delayed] (Headers, Body, Due) VALUES (N'', NULL, DATEADD(DAY, -100, GETUTCDATE()));

INSERT INTO #watched (waiting, next_due_ms, is_paused, worker_limit, reason, changed_by)
EXEC rowpost.[watch_queue:Sample] @count = 10;

DECLARE @due bigint = (SELECT w.next_due_ms FROM #watched AS w);
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @due;
GO
CREATE OR ALTER PROCEDURE queue_watch_queue.[test watch_queue says null where no delayed message waits]
AS
CREATE TABLE #watched (waiting int, next_due_ms bigint, is_paused bit, worker_limit int, reason nvarchar(400), changed_by nvarchar(128));

INSERT INTO #watched (waiting, next_due_ms, is_paused, worker_limit, reason, changed_by)
EXEC rowpost.[watch_queue:Sample] @count = 10;

DECLARE @nothing int = (SELECT COUNT(*) FROM #watched AS w WHERE w.next_due_ms IS NULL);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @nothing;
GO
CREATE OR ALTER PROCEDURE queue_watch_queue.[test watch_queue looks for no delayed message where the queue has no table of them]
AS
CREATE TABLE #watched (waiting int, next_due_ms bigint, is_paused bit, worker_limit int, reason nvarchar(400), changed_by nvarchar(128));
INSERT INTO dbo.[Sample.Delayed] (Headers, Body, Due) VALUES (N'', NULL, GETUTCDATE());
UPDATE q SET q.delayed = 0 FROM rowpost.queue AS q WHERE q.queue_key = N'Sample';

INSERT INTO #watched (waiting, next_due_ms, is_paused, worker_limit, reason, changed_by)
EXEC rowpost.[watch_queue:Sample] @count = 10;

DECLARE @nothing int = (SELECT COUNT(*) FROM #watched AS w WHERE w.next_due_ms IS NULL);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @nothing;
GO
CREATE OR ALTER PROCEDURE queue_watch_queue.[test watch_queue takes nothing]
AS
EXEC rowpost.[send_message:Sample] @headers = N'';

EXEC rowpost.[watch_queue:Sample] @count = 10;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE queue_watch_queue.[test watch_queue refuses a count of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[watch_queue:Sample] @count = 0;
GO
CREATE OR ALTER PROCEDURE queue_watch_queue.[test watch_queue refuses a count of 10001]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[watch_queue:Sample] @count = 10001;
GO
CREATE OR ALTER PROCEDURE queue_watch_queue.[test watch_queue refuses a count of NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[watch_queue:Sample] @count = NULL;
GO
CREATE OR ALTER PROCEDURE queue_watch_queue.[test watch_queue leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[watch_queue:Sample] @count = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
CREATE OR ALTER PROCEDURE queue_watch_queue.[test watch_queue works under SERIALIZABLE and keeps it]
AS
-- Babelfish: cannot change the isolation level within a transaction
SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;

EXEC rowpost.[watch_queue:Sample] @count = 1;

DECLARE @level int = (SELECT s.transaction_isolation_level FROM sys.dm_exec_sessions AS s WHERE s.session_id = @@SPID);
EXEC tSQLt.AssertEquals @Expected = 4, @Actual = @level;
GO
CREATE OR ALTER PROCEDURE queue_watch_queue.[test watch_queue says that operators have set nothing]
AS
CREATE TABLE #watched (waiting int, next_due_ms bigint, is_paused bit, worker_limit int, reason nvarchar(400), changed_by nvarchar(128));

INSERT INTO #watched (waiting, next_due_ms, is_paused, worker_limit, reason, changed_by)
EXEC rowpost.[watch_queue:Sample] @count = 10;

SELECT w.is_paused, w.worker_limit, w.changed_by INTO #actual FROM #watched AS w;
SELECT TOP (0) a.is_paused, a.worker_limit, a.changed_by INTO #expected FROM #actual AS a;
INSERT INTO #expected (is_paused, worker_limit, changed_by) VALUES (0, NULL, NULL);
EXEC tSQLt.AssertEqualsTable @Expected = N'#expected', @Actual = N'#actual';
GO
CREATE OR ALTER PROCEDURE queue_watch_queue.[test watch_queue says what operators have set]
AS
CREATE TABLE #watched (waiting int, next_due_ms bigint, is_paused bit, worker_limit int, reason nvarchar(400), changed_by nvarchar(128));
EXEC rowpost.control_queue @queue_name = N'Sample', @is_paused = 1, @worker_limit = 3, @reason = N'closed';

INSERT INTO #watched (waiting, next_due_ms, is_paused, worker_limit, reason, changed_by)
EXEC rowpost.[watch_queue:Sample] @count = 10, @supervisor_id = 'aaaaaaaa-0000-0000-0000-000000000001';

DECLARE @right int = (
    SELECT COUNT(*) FROM #watched AS w WHERE w.is_paused = 1 AND w.worker_limit = 3 AND w.reason = N'closed' AND w.changed_by = ORIGINAL_LOGIN()
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE queue_watch_queue.[test watch_queue divides a shared limit among the supervisors that are alive]
AS
CREATE TABLE #watched (waiting int, next_due_ms bigint, is_paused bit, worker_limit int, reason nvarchar(400), changed_by nvarchar(128));
INSERT INTO rowpost.supervisor (supervisor_id, host_name, process_id, environment, rowpost_version, login_name, started_at, seen_at, queues, workers)
VALUES
('aaaaaaaa-0000-0000-0000-000000000001', N'a', 8, N'e', N'1', N'x', SYSUTCDATETIME(), SYSUTCDATETIME(), N'[]', N'[]'),
('aaaaaaaa-0000-0000-0000-000000000002', N'b', 8, N'e', N'1', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -1, SYSUTCDATETIME()), N'[]', N'[]'),
('aaaaaaaa-0000-0000-0000-000000000003', N'c', 8, N'e', N'1', N'x', SYSUTCDATETIME(), SYSUTCDATETIME(), N'[]', N'[]');
INSERT INTO rowpost.supervised_queue (queue_key, supervisor_id)
SELECT N'Sample', s.supervisor_id
FROM rowpost.supervisor AS s;
EXEC rowpost.control_queue @queue_name = N'Sample', @worker_limit = 5, @shared = 1;

INSERT INTO #watched (waiting, next_due_ms, is_paused, worker_limit, reason, changed_by)
EXEC rowpost.[watch_queue:Sample] @count = 10, @supervisor_id = 'aaaaaaaa-0000-0000-0000-000000000001';
INSERT INTO #watched (waiting, next_due_ms, is_paused, worker_limit, reason, changed_by)
EXEC rowpost.[watch_queue:Sample] @count = 10, @supervisor_id = 'aaaaaaaa-0000-0000-0000-000000000003';

DECLARE @parts nvarchar(40) = (SELECT CONCAT(MIN(w.worker_limit), N' ', MAX(w.worker_limit)) FROM #watched AS w);
EXEC tSQLt.AssertEquals @Expected = N'2 3', @Actual = @parts;
GO
