SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'schedule_list_schedules';
GO
CREATE OR ALTER PROCEDURE schedule_list_schedules.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE schedule_list_schedules.[test list_schedules shows a schedule and how late it is]
AS
CREATE TABLE #listed
(schedule_name nvarchar(150), queue_name nvarchar(400), destination nvarchar(200), message_type nvarchar(200), cron nvarchar(200), interval_ms bigint,
 zone nvarchar(100), missed nvarchar(10), next_due datetime2(3), sent_due datetime2(3), late_ms bigint, requested_at datetime2(3), is_paused bit,
 reason nvarchar(400), changed_by nvarchar(128), changed_at datetime2(3), measured_at datetime2(3));
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.ticked_to = '2026-01-01', s.next_due = '2026-01-01T01:00:00' FROM rowpost.schedule AS s;

INSERT INTO #listed (schedule_name, queue_name, destination, message_type, cron, interval_ms,
    zone, missed, next_due, sent_due, late_ms, requested_at, is_paused, reason, changed_by, changed_at, measured_at)
EXEC rowpost.list_schedules;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM #listed AS l
    WHERE l.schedule_name = N'hourly' AND l.queue_name = N'Sample' AND l.interval_ms = 3600000 AND l.missed = N'all' AND l.late_ms > 0
      AND l.next_due = '2026-01-01T01:00:00' AND l.changed_by = ORIGINAL_LOGIN()
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_list_schedules.[test list_schedules shows a paused schedule as not late]
AS
CREATE TABLE #listed
(schedule_name nvarchar(150), queue_name nvarchar(400), destination nvarchar(200), message_type nvarchar(200), cron nvarchar(200), interval_ms bigint,
 zone nvarchar(100), missed nvarchar(10), next_due datetime2(3), sent_due datetime2(3), late_ms bigint, requested_at datetime2(3), is_paused bit,
 reason nvarchar(400), changed_by nvarchar(128), changed_at datetime2(3), measured_at datetime2(3));
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.ticked_to = '2026-01-01', s.next_due = '2026-01-01T01:00:00' FROM rowpost.schedule AS s;
UPDATE s SET s.is_paused = 1 FROM rowpost.schedule AS s;

INSERT INTO #listed (schedule_name, queue_name, destination, message_type, cron, interval_ms,
    zone, missed, next_due, sent_due, late_ms, requested_at, is_paused, reason, changed_by, changed_at, measured_at)
EXEC rowpost.list_schedules;

DECLARE @late bigint = (SELECT l.late_ms FROM #listed AS l);
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @late;
GO
CREATE OR ALTER PROCEDURE schedule_list_schedules.[test list_schedules shows nothing without schedules]
AS
CREATE TABLE #listed
(schedule_name nvarchar(150), queue_name nvarchar(400), destination nvarchar(200), message_type nvarchar(200), cron nvarchar(200), interval_ms bigint,
 zone nvarchar(100), missed nvarchar(10), next_due datetime2(3), sent_due datetime2(3), late_ms bigint, requested_at datetime2(3), is_paused bit,
 reason nvarchar(400), changed_by nvarchar(128), changed_at datetime2(3), measured_at datetime2(3));

INSERT INTO #listed (schedule_name, queue_name, destination, message_type, cron, interval_ms,
    zone, missed, next_due, sent_due, late_ms, requested_at, is_paused, reason, changed_by, changed_at, measured_at)
EXEC rowpost.list_schedules;

EXEC tSQLt.AssertEmptyTable @TableName = N'#listed';
GO
CREATE OR ALTER PROCEDURE schedule_list_schedules.[test list_schedules leaves the callers session as it was]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.list_schedules;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
