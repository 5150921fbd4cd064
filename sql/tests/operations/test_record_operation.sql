SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'operations_record_operation';
GO
CREATE OR ALTER PROCEDURE operations_record_operation.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE operations_record_operation.[test record_operation records who did what and why]
AS
EXEC rowpost.record_operation
    @operation_name = N'retry', @client = N'test', @queue_name = N'Sample', @user_name = N'ada', @message_id = N'm-1', @details = N'{}', @reason = N'mended';

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.operation_log AS a
    WHERE a.operation_name = N'retry' AND a.operation_state = N'done' AND a.queue_name = N'Sample' AND a.user_name = N'ada' AND a.message_id = N'm-1'
      AND a.reason = N'mended' AND a.login_name = ORIGINAL_LOGIN() AND a.done_count = 1 AND a.ended_at = a.started_at AND a.executor IS NULL
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE operations_record_operation.[test record_operation records an operation that goes on as running]
AS
EXEC rowpost.record_operation
    @operation_name = N'retry', @client = N'test', @queue_name = N'Sample', @up_to = 90, @executor = 'aaaaaaaa-0000-0000-0000-000000000001';

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.operation_log AS a
    WHERE a.operation_state = N'running' AND a.ended_at IS NULL AND a.done_count = 0 AND a.up_to = 90
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE operations_record_operation.[test record_operation returns the number of the operation]
AS
-- Babelfish: INSERT EXEC takes no procedure that calls another one
CREATE TABLE #recorded (operation_id bigint);
INSERT INTO #recorded (operation_id)
EXEC rowpost.record_operation @operation_name = N'retry', @client = N'test', @queue_name = N'Sample';

DECLARE @right int = (SELECT COUNT(*) FROM #recorded AS r INNER JOIN rowpost.operation_log AS a ON r.operation_id = a.operation_id);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE operations_record_operation.[test record_operation names a queue that is not registered]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.record_operation @operation_name = N'retry', @client = N'test', @queue_name = N'Nowhere';
GO
CREATE OR ALTER PROCEDURE operations_record_operation.[test record_operation leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.record_operation @operation_name = N'retry', @client = N'test', @queue_name = N'Sample';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
