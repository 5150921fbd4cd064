SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'schedule_take_requested_tick';
GO
CREATE OR ALTER PROCEDURE schedule_take_requested_tick.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE schedule_take_requested_tick.[test take_requested_tick takes a request once and says so]
AS
-- Babelfish: INSERT EXEC takes no procedure that calls another one
CREATE TABLE #said (taken bit);
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.requested_at = '2026-01-01' FROM rowpost.schedule AS s;

INSERT INTO #said (taken)
EXEC rowpost.take_requested_tick @queue_name = N'Sample', @schedule_name = N'hourly', @requested_at_ms = 1767225600000;
INSERT INTO #said (taken)
EXEC rowpost.take_requested_tick @queue_name = N'Sample', @schedule_name = N'hourly', @requested_at_ms = 1767225600000;

DECLARE @taken int = (SELECT COUNT(*) FROM #said AS s WHERE s.taken = 1);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @taken;
DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.requested_at IS NULL
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_take_requested_tick.[test take_requested_tick leaves another request]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.requested_at = '2026-01-02' FROM rowpost.schedule AS s;

EXEC rowpost.take_requested_tick @queue_name = N'Sample', @schedule_name = N'hourly', @requested_at_ms = 1767225600000;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.requested_at = '2026-01-02'
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_take_requested_tick.[test take_requested_tick names a queue that is not registered]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.take_requested_tick @queue_name = N'x''; DROP TABLE rowpost.queue; --', @schedule_name = N'hourly', @requested_at_ms = 1767225600000;
GO
CREATE OR ALTER PROCEDURE schedule_take_requested_tick.[test take_requested_tick is undone by the callers rollback]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.requested_at = '2026-01-01' FROM rowpost.schedule AS s;
SAVE TRANSACTION before_it;

EXEC rowpost.take_requested_tick @queue_name = N'Sample', @schedule_name = N'hourly', @requested_at_ms = 1767225600000;
ROLLBACK TRANSACTION before_it;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.requested_at = '2026-01-01'
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_take_requested_tick.[test take_requested_tick leaves the callers session as it was]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.take_requested_tick @queue_name = N'Sample', @schedule_name = N'hourly', @requested_at_ms = 1767225600000;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
