SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'schedule_watch_schedules';
GO
CREATE OR ALTER PROCEDURE schedule_watch_schedules.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE schedule_watch_schedules.[test watch_schedules returns the schedules of one queue with the servers time]
AS
-- Babelfish: INSERT EXEC takes no procedure that calls another one
CREATE TABLE #seen
(schedule_name nvarchar(150), cron nvarchar(200), interval_ms bigint, zone nvarchar(100), missed nvarchar(10), ticked_to datetime2(3), next_due datetime2(3),
 requested_at datetime2(3), is_paused bit, measured_at datetime2(3));
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.ticked_to = '2026-01-01', s.next_due = '2026-01-01T01:00:00' FROM rowpost.schedule AS s;
EXEC rowpost.register_schedule @schedule_name = N'other', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.queue_key = N'Other' FROM rowpost.schedule AS s WHERE s.schedule_name = N'other';

INSERT INTO #seen (schedule_name, cron, interval_ms, zone, missed, ticked_to, next_due, requested_at, is_paused, measured_at)
EXEC rowpost.watch_schedules @queue_name = N'Sample';

DECLARE @right int = (
    SELECT COUNT(*)
    FROM #seen AS w
    WHERE w.schedule_name = N'hourly' AND w.ticked_to = '2026-01-01' AND ABS(DATEDIFF(SECOND, w.measured_at, SYSUTCDATETIME())) < 60
);
DECLARE @rows int = (SELECT COUNT(*) FROM #seen AS w);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE schedule_watch_schedules.[test watch_schedules names a queue that is not registered]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.watch_schedules @queue_name = N'x''; DROP TABLE rowpost.queue; --';
GO
CREATE OR ALTER PROCEDURE schedule_watch_schedules.[test watch_schedules leaves the callers session as it was]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.watch_schedules @queue_name = N'Sample';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
