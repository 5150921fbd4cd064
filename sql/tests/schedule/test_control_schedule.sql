SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'schedule_control_schedule';
GO
CREATE OR ALTER PROCEDURE schedule_control_schedule.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE schedule_control_schedule.[test control_schedule pauses a schedule and says who did it and why]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';

EXEC rowpost.control_schedule @schedule_name = N'hourly', @is_paused = 1, @reason = N'closed';

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.is_paused = 1 AND s.reason = N'closed' AND s.changed_by = ORIGINAL_LOGIN()
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_control_schedule.[test control_schedule lets a schedule that it resumes begin with now]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.ticked_to = '2026-01-01', s.next_due = '2026-01-01T01:00:00' FROM rowpost.schedule AS s;
EXEC rowpost.control_schedule @schedule_name = N'hourly', @is_paused = 1, @reason = N'closed';

EXEC rowpost.control_schedule @schedule_name = N'hourly', @is_paused = 0;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.is_paused = 0 AND s.reason IS NULL AND s.next_due IS NULL AND s.ticked_to > '2026-01-01'
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_control_schedule.[test control_schedule leaves a schedule that was not paused]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.ticked_to = '2026-01-01', s.next_due = '2026-01-01T01:00:00' FROM rowpost.schedule AS s;

EXEC rowpost.control_schedule @schedule_name = N'hourly', @is_paused = 0;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.ticked_to = '2026-01-01' AND s.next_due = '2026-01-01T01:00:00'
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_control_schedule.[test control_schedule requests one tick]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.requested_at = '2026-01-01' FROM rowpost.schedule AS s;

EXEC rowpost.control_schedule @schedule_name = N'hourly', @run_now = 1;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.requested_at = '2026-01-01' AND s.is_paused = 0
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_control_schedule.[test control_schedule names a schedule that is not stored]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51036;

EXEC rowpost.control_schedule @schedule_name = N'x''; DROP TABLE rowpost.queue; --', @is_paused = 1;
GO
CREATE OR ALTER PROCEDURE schedule_control_schedule.[test control_schedule is undone by the callers rollback]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
SAVE TRANSACTION before_it;

EXEC rowpost.control_schedule @schedule_name = N'hourly', @is_paused = 1, @reason = N'closed';
ROLLBACK TRANSACTION before_it;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.is_paused = 0
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_control_schedule.[test control_schedule leaves the callers session as it was]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.control_schedule @schedule_name = N'hourly', @is_paused = 1, @reason = N'closed';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
