SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'operations_cancel_operation';
GO
CREATE OR ALTER PROCEDURE operations_cancel_operation.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE operations_cancel_operation.[test cancel_operation lets a running operation go on until its next report]
AS
INSERT INTO rowpost.operation_log (operation_name, operation_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count, executor)
VALUES (N'retry', N'running', N'test', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -0, SYSUTCDATETIME()), 0, 0, 0, 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @operation bigint = SCOPE_IDENTITY();

EXEC rowpost.cancel_operation @operation_id = @operation, @user_name = N'ada';

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.operation_log AS a
    WHERE a.operation_state = N'running' AND a.ended_at IS NULL AND a.cancelled_by LIKE N'ada (%'
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE operations_cancel_operation.[test cancel_operation ends an operation whose process is silent]
AS
INSERT INTO rowpost.operation_log (operation_name, operation_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count, executor)
VALUES (N'retry', N'running', N'test', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -5, SYSUTCDATETIME()), 0, 0, 0, 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @operation bigint = SCOPE_IDENTITY();

EXEC rowpost.cancel_operation @operation_id = @operation;

DECLARE @right int = (SELECT COUNT(*) FROM rowpost.operation_log AS a WHERE a.operation_state = N'cancelled' AND a.ended_at IS NOT NULL);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE operations_cancel_operation.[test cancel_operation changes no operation that has ended]
AS
INSERT INTO rowpost.operation_log (operation_name, operation_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count, executor)
VALUES (N'retry', N'done', N'test', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -0, SYSUTCDATETIME()), 0, 0, 0, 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @operation bigint = SCOPE_IDENTITY();

EXEC rowpost.cancel_operation @operation_id = @operation;

DECLARE @right int = (SELECT COUNT(*) FROM rowpost.operation_log AS a WHERE a.operation_state = N'done' AND a.cancelled_by IS NULL);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE operations_cancel_operation.[test cancel_operation leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.cancel_operation @operation_id = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
