SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'schedule_register_schedule';
GO
CREATE OR ALTER PROCEDURE schedule_register_schedule.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE schedule_register_schedule.[test register_schedule begins a new schedule with now]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.schedule_name = N'hourly' AND s.queue_key = N'Sample' AND s.destination = N'Sample' AND s.message_type = N'Shop.Count'
      AND s.cron IS NULL AND s.interval_ms = 3600000 AND s.zone = N'UTC' AND s.missed = N'all' AND s.next_due IS NULL AND s.is_paused = 0
      AND ABS(DATEDIFF(SECOND, s.ticked_to, SYSUTCDATETIME())) < 60
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_register_schedule.[test register_schedule lets the same due times go on]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.ticked_to = '2026-01-01', s.next_due = '2026-01-01T01:00:00' FROM rowpost.schedule AS s;

EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'once';

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.ticked_to = '2026-01-01' AND s.next_due = '2026-01-01T01:00:00' AND s.missed = N'once'
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_register_schedule.[test register_schedule begins other due times with now]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.ticked_to = '2026-01-01', s.next_due = '2026-01-01T01:00:00' FROM rowpost.schedule AS s;

EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 60000, @zone = N'UTC', @missed = N'all';

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.ticked_to > '2026-01-01' AND s.next_due IS NULL AND s.interval_ms = 60000
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_register_schedule.[test register_schedule moves no schedule back]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
UPDATE s SET s.ticked_to = '2999-01-01' FROM rowpost.schedule AS s;

EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 60000, @zone = N'UTC', @missed = N'all';

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.ticked_to = '2999-01-01'
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_register_schedule.[test register_schedule refuses a schedule without due times]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51037;

EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = NULL, @zone = N'UTC', @missed = N'all';
GO
CREATE OR ALTER PROCEDURE schedule_register_schedule.[test register_schedule refuses two kinds of due times]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51037;

EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @cron = N'0 * * * *', @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
GO
CREATE OR ALTER PROCEDURE schedule_register_schedule.[test register_schedule refuses an interval below a second]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51037;

EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 999, @zone = N'UTC', @missed = N'all';
GO
CREATE OR ALTER PROCEDURE schedule_register_schedule.[test register_schedule refuses another word for what was missed]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51037;

EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'never';
GO
CREATE OR ALTER PROCEDURE schedule_register_schedule.[test register_schedule refuses a name of 151 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51034;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 151);

EXEC rowpost.register_schedule @schedule_name = @long, @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
GO
CREATE OR ALTER PROCEDURE schedule_register_schedule.[test register_schedule names a queue that is not registered]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'x''; DROP TABLE rowpost.queue; --',
    @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
GO
CREATE OR ALTER PROCEDURE schedule_register_schedule.[test register_schedule is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
ROLLBACK TRANSACTION before_it;

EXEC tSQLt.AssertEmptyTable @TableName = N'rowpost.schedule';
GO
CREATE OR ALTER PROCEDURE schedule_register_schedule.[test register_schedule leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
