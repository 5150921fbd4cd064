SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'control_control_queue';
GO
CREATE OR ALTER PROCEDURE control_control_queue.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE control_control_queue.[test control_queue pauses a queue and says who did it and why]
AS
EXEC rowpost.control_queue @queue_name = N'Sample', @is_paused = 1, @reason = N'the shop is closed';

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.queue_control AS c
    WHERE c.queue_key = N'Sample' AND c.is_paused = 1 AND c.worker_limit IS NULL AND c.shared = 0 AND c.reason = N'the shop is closed'
      AND c.changed_by = ORIGINAL_LOGIN()
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE control_control_queue.[test control_queue keeps the limit of a queue that it pauses and resumes]
AS
EXEC rowpost.control_queue @queue_name = N'Sample', @worker_limit = 3, @shared = 1;
EXEC rowpost.control_queue @queue_name = N'Sample', @is_paused = 1;
EXEC rowpost.control_queue @queue_name = N'Sample', @is_paused = 0;

DECLARE @kept int = (SELECT c.worker_limit FROM rowpost.queue_control AS c WHERE c.queue_key = N'Sample' AND c.is_paused = 0 AND c.shared = 1);
EXEC tSQLt.AssertEquals @Expected = 3, @Actual = @kept;
GO
CREATE OR ALTER PROCEDURE control_control_queue.[test control_queue deletes the row of a queue that works as its environment says]
AS
EXEC rowpost.control_queue @queue_name = N'Sample', @is_paused = 1, @worker_limit = 3;
EXEC rowpost.control_queue @queue_name = N'Sample', @is_paused = 0;
EXEC rowpost.control_queue @queue_name = N'Sample', @worker_limit = 0;

EXEC tSQLt.AssertEmptyTable @TableName = N'rowpost.queue_control';
GO
CREATE OR ALTER PROCEDURE control_control_queue.[test control_queue refuses a negative limit]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.control_queue @queue_name = N'Sample', @worker_limit = -1;
GO
CREATE OR ALTER PROCEDURE control_control_queue.[test control_queue refuses a limit above ten thousand]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.control_queue @queue_name = N'Sample', @worker_limit = 10001;
GO
CREATE OR ALTER PROCEDURE control_control_queue.[test control_queue names a queue that is not registered]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.control_queue @queue_name = N'x''; DROP TABLE rowpost.queue; --', @is_paused = 1;
GO
CREATE OR ALTER PROCEDURE control_control_queue.[test control_queue is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.control_queue @queue_name = N'Sample', @is_paused = 1;
ROLLBACK TRANSACTION before_it;

EXEC tSQLt.AssertEmptyTable @TableName = N'rowpost.queue_control';
GO
CREATE OR ALTER PROCEDURE control_control_queue.[test control_queue leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.control_queue @queue_name = N'Sample', @is_paused = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
