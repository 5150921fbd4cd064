SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'schedule_unregister_schedule';
GO
CREATE OR ALTER PROCEDURE schedule_unregister_schedule.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE schedule_unregister_schedule.[test unregister_schedule removes one schedule]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
EXEC rowpost.register_schedule @schedule_name = N'nightly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';

EXEC rowpost.unregister_schedule @schedule_name = N'hourly';

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.schedule_name = N'nightly'
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.schedule AS s);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE schedule_unregister_schedule.[test unregister_schedule changes nothing if there is none]
AS
EXEC rowpost.unregister_schedule @schedule_name = N'hourly';

EXEC tSQLt.AssertEmptyTable @TableName = N'rowpost.schedule';
GO
CREATE OR ALTER PROCEDURE schedule_unregister_schedule.[test unregister_schedule is undone by the callers rollback]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
SAVE TRANSACTION before_it;

EXEC rowpost.unregister_schedule @schedule_name = N'hourly';
ROLLBACK TRANSACTION before_it;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.schedule AS s
    WHERE s.schedule_name = N'hourly'
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE schedule_unregister_schedule.[test unregister_schedule leaves the callers session as it was]
AS
EXEC rowpost.register_schedule @schedule_name = N'hourly', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Shop.Count',
    @interval_ms = 3600000, @zone = N'UTC', @missed = N'all';
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.unregister_schedule @schedule_name = N'hourly';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
