SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'schedule_advance_schedule';
GO
CREATE OR ALTER PROCEDURE schedule_advance_schedule.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE schedule_advance_schedule.[test advance_schedule moves a schedule on from what was seen]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.ticked_to = '2026-01-01', s.next_due = '2026-01-01T01:00:00' FROM rowpost.schedule AS s;

EXEC rowpost.advance_schedule @queue_name = N'Sample', @schedule_name = N'hourly',
    @seen_ms = 1767225600000, @ticked_to_ms = 1767229200000, @next_due_ms = 1767232800000,
    @sent_due_ms = 1767229200000;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.ticked_to = '2026-01-01T01:00:00' AND s.next_due = '2026-01-01T02:00:00' AND s.sent_due = '2026-01-01T01:00:00'
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_advance_schedule.[test advance_schedule says whether it moved it on]
AS
-- Babelfish: INSERT EXEC takes no procedure that calls another one
CREATE TABLE #said (advanced bit);
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.ticked_to = '2026-01-01', s.next_due = '2026-01-01T01:00:00' FROM rowpost.schedule AS s;

INSERT INTO #said (advanced)
EXEC rowpost.advance_schedule @queue_name = N'Sample', @schedule_name = N'hourly',
    @seen_ms = 1767225600000, @ticked_to_ms = 1767229200000, @next_due_ms = 1767232800000,
    @sent_due_ms = 1767229200000;
INSERT INTO #said (advanced)
EXEC rowpost.advance_schedule @queue_name = N'Sample', @schedule_name = N'hourly',
    @seen_ms = 1767225600000, @ticked_to_ms = 1767229200000, @next_due_ms = 1767232800000,
    @sent_due_ms = 1767229200000;

DECLARE @moved int = (SELECT COUNT(*) FROM #said AS s WHERE s.advanced = 1);
DECLARE @rows int = (SELECT COUNT(*) FROM #said AS s);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @moved;
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE schedule_advance_schedule.[test advance_schedule leaves a schedule that somebody else moved on]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.ticked_to = '2026-01-01', s.next_due = '2026-01-01T01:00:00' FROM rowpost.schedule AS s;
UPDATE s SET s.ticked_to = '2026-01-01T00:30:00' FROM rowpost.schedule AS s;

EXEC rowpost.advance_schedule @queue_name = N'Sample', @schedule_name = N'hourly',
    @seen_ms = 1767225600000, @ticked_to_ms = 1767229200000, @next_due_ms = 1767232800000,
    @sent_due_ms = 1767229200000;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.ticked_to = '2026-01-01T00:30:00' AND s.sent_due IS NULL
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_advance_schedule.[test advance_schedule leaves a paused schedule]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.ticked_to = '2026-01-01', s.next_due = '2026-01-01T01:00:00' FROM rowpost.schedule AS s;
UPDATE s SET s.is_paused = 1 FROM rowpost.schedule AS s;

EXEC rowpost.advance_schedule @queue_name = N'Sample', @schedule_name = N'hourly',
    @seen_ms = 1767225600000, @ticked_to_ms = 1767229200000, @next_due_ms = 1767232800000,
    @sent_due_ms = 1767229200000;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.ticked_to = '2026-01-01' AND s.next_due = '2026-01-01T01:00:00' AND s.sent_due IS NULL
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_advance_schedule.[test advance_schedule leaves a tick that is not due]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.ticked_to = '2026-01-01', s.next_due = '2026-01-01T01:00:00' FROM rowpost.schedule AS s;

EXEC rowpost.advance_schedule @queue_name = N'Sample', @schedule_name = N'hourly',
    @seen_ms = 1767225600000, @ticked_to_ms = 4922985600000, @next_due_ms = 4923072000000,
    @sent_due_ms = 4922985600000;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.ticked_to = '2026-01-01' AND s.next_due = '2026-01-01T01:00:00' AND s.sent_due IS NULL
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_advance_schedule.[test advance_schedule stores the next tick before one is done]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.ticked_to = '2026-01-01', s.next_due = '2026-01-01T01:00:00' FROM rowpost.schedule AS s;

EXEC rowpost.advance_schedule @queue_name = N'Sample', @schedule_name = N'hourly',
    @seen_ms = 1767225600000, @ticked_to_ms = 1767225600000, @next_due_ms = 1767232800000;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.ticked_to = '2026-01-01' AND s.next_due = '2026-01-01T02:00:00' AND s.sent_due IS NULL
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_advance_schedule.[test advance_schedule refuses to move a schedule back]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51037;

EXEC rowpost.advance_schedule @queue_name = N'Sample', @schedule_name = N'hourly', @seen_ms = 2, @ticked_to_ms = 1;
GO
CREATE OR ALTER PROCEDURE schedule_advance_schedule.[test advance_schedule refuses a message for a tick that was done]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51037;

EXEC rowpost.advance_schedule @queue_name = N'Sample', @schedule_name = N'hourly', @seen_ms = 2, @ticked_to_ms = 3, @sent_due_ms = 2;
GO
CREATE OR ALTER PROCEDURE schedule_advance_schedule.[test advance_schedule names a queue that is not registered]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.advance_schedule @queue_name = N'x''; DROP TABLE rowpost.queue; --', @schedule_name = N'hourly',
    @seen_ms = 1767225600000, @ticked_to_ms = 1767229200000, @next_due_ms = 1767232800000,
    @sent_due_ms = 1767229200000;
GO
CREATE OR ALTER PROCEDURE schedule_advance_schedule.[test advance_schedule is undone by the callers rollback]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.ticked_to = '2026-01-01', s.next_due = '2026-01-01T01:00:00' FROM rowpost.schedule AS s;
SAVE TRANSACTION before_it;

EXEC rowpost.advance_schedule @queue_name = N'Sample', @schedule_name = N'hourly',
    @seen_ms = 1767225600000, @ticked_to_ms = 1767229200000, @next_due_ms = 1767232800000,
    @sent_due_ms = 1767229200000;
ROLLBACK TRANSACTION before_it;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.ticked_to = '2026-01-01' AND s.next_due = '2026-01-01T01:00:00' AND s.sent_due IS NULL
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_advance_schedule.[test advance_schedule leaves the callers session as it was]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.advance_schedule @queue_name = N'Sample', @schedule_name = N'hourly',
    @seen_ms = 1767225600000, @ticked_to_ms = 1767229200000, @next_due_ms = 1767232800000,
    @sent_due_ms = 1767229200000;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
