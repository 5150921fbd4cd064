SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'control_list_controls';
GO
CREATE OR ALTER PROCEDURE control_list_controls.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE control_list_controls.[test list_controls shows what operators have set]
AS
CREATE TABLE #listed
(queue_name nvarchar(400), is_paused bit, worker_limit int, shared bit, reason nvarchar(400), changed_by nvarchar(128), changed_at datetime2(3));
EXEC rowpost.control_queue @queue_name = N'Sample', @worker_limit = 3, @shared = 1, @reason = N'slow printer';

INSERT INTO #listed (queue_name, is_paused, worker_limit, shared, reason, changed_by, changed_at)
EXEC rowpost.list_controls;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM #listed AS l
    WHERE l.queue_name = N'Sample' AND l.is_paused = 0 AND l.worker_limit = 3 AND l.shared = 1 AND l.reason = N'slow printer'
      AND l.changed_by = ORIGINAL_LOGIN() AND ABS(DATEDIFF(SECOND, l.changed_at, SYSUTCDATETIME())) < 60
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE control_list_controls.[test list_controls shows nothing of queues that work as their environments say]
AS
CREATE TABLE #listed
(queue_name nvarchar(400), is_paused bit, worker_limit int, shared bit, reason nvarchar(400), changed_by nvarchar(128), changed_at datetime2(3));

INSERT INTO #listed (queue_name, is_paused, worker_limit, shared, reason, changed_by, changed_at)
EXEC rowpost.list_controls;

EXEC tSQLt.AssertEmptyTable @TableName = N'#listed';
GO
CREATE OR ALTER PROCEDURE control_list_controls.[test list_controls leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.list_controls;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
