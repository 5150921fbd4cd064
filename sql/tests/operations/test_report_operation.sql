SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'operations_report_operation';
GO
CREATE OR ALTER PROCEDURE operations_report_operation.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE operations_report_operation.[test report_operation keeps what is not given]
AS
INSERT INTO rowpost.operation_log (operation_name, operation_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count, executor)
VALUES (N'retry', N'running', N'test', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -0, SYSUTCDATETIME()), 0, 0, 0, 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @operation bigint = SCOPE_IDENTITY();

EXEC rowpost.report_operation @operation_id = @operation, @executor = 'aaaaaaaa-0000-0000-0000-000000000001', @total = 7, @done = 3, @reached = 40;
EXEC rowpost.report_operation
    @operation_id = @operation, @executor = 'aaaaaaaa-0000-0000-0000-000000000001', @gone = 1, @refused = 2, @up_to = 90, @outcome = N'x';

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.operation_log AS a
    WHERE a.operation_id = @operation AND a.operation_state = N'running' AND a.ended_at IS NULL AND a.total_count = 7 AND a.done_count = 3 AND a.gone_count = 1
      AND a.refused_count = 2 AND a.reached = 40 AND a.up_to = 90 AND a.outcome = N'x'
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE operations_report_operation.[test report_operation returns no row to another executor]
AS
INSERT INTO rowpost.operation_log (operation_name, operation_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count, executor)
VALUES (N'retry', N'running', N'test', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -0, SYSUTCDATETIME()), 0, 0, 0, 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @operation bigint = SCOPE_IDENTITY();

CREATE TABLE #reported (is_cancelled bit);
INSERT INTO #reported (is_cancelled)
EXEC rowpost.report_operation @operation_id = @operation, @executor = 'aaaaaaaa-0000-0000-0000-000000000002', @done = 3;

DECLARE @done bigint = (SELECT a.done_count FROM rowpost.operation_log AS a WHERE a.operation_id = @operation);
EXEC tSQLt.AssertEmptyTable @TableName = N'#reported';
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @done;
GO
CREATE OR ALTER PROCEDURE operations_report_operation.[test report_operation returns no row after the end]
AS
INSERT INTO rowpost.operation_log (operation_name, operation_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count, executor)
VALUES (N'retry', N'running', N'test', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -0, SYSUTCDATETIME()), 0, 0, 0, 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @operation bigint = SCOPE_IDENTITY();

CREATE TABLE #reported (is_cancelled bit);
INSERT INTO #reported (is_cancelled)
EXEC rowpost.report_operation @operation_id = @operation, @executor = 'aaaaaaaa-0000-0000-0000-000000000001', @operation_state = N'done';
INSERT INTO #reported (is_cancelled)
EXEC rowpost.report_operation @operation_id = @operation, @executor = 'aaaaaaaa-0000-0000-0000-000000000001';

DECLARE @rows int = (SELECT COUNT(*) FROM #reported AS r);
DECLARE @ended int = (SELECT COUNT(*) FROM rowpost.operation_log AS a WHERE a.operation_state = N'done' AND a.ended_at = a.changed_at);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @ended;
GO
CREATE OR ALTER PROCEDURE operations_report_operation.[test report_operation says that somebody has cancelled it]
AS
INSERT INTO rowpost.operation_log (operation_name, operation_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count, executor)
VALUES (N'retry', N'running', N'test', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -0, SYSUTCDATETIME()), 0, 0, 0, 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @operation bigint = SCOPE_IDENTITY();

CREATE TABLE #reported (is_cancelled bit);
EXEC rowpost.cancel_operation @operation_id = @operation;
INSERT INTO #reported (is_cancelled)
EXEC rowpost.report_operation @operation_id = @operation, @executor = 'aaaaaaaa-0000-0000-0000-000000000001';

DECLARE @cancelled int = (SELECT COUNT(*) FROM #reported AS r WHERE r.is_cancelled = 1);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @cancelled;
GO
CREATE OR ALTER PROCEDURE operations_report_operation.[test report_operation leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.report_operation @operation_id = 1, @executor = 'aaaaaaaa-0000-0000-0000-000000000001';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
