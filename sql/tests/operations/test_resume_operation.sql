SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'operations_resume_operation';
GO
CREATE OR ALTER PROCEDURE operations_resume_operation.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE operations_resume_operation.[test resume_operation takes an operation from a silent process]
AS
INSERT INTO rowpost.operation_log (operation_name, operation_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count, executor)
VALUES (N'retry', N'running', N'test', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -5, SYSUTCDATETIME()), 0, 0, 0, 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @operation bigint = SCOPE_IDENTITY();

EXEC rowpost.resume_operation @operation_id = @operation, @executor = 'aaaaaaaa-0000-0000-0000-000000000002';

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.operation_log AS a
    WHERE a.operation_state = N'running' AND a.executor = 'aaaaaaaa-0000-0000-0000-000000000002'
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE operations_resume_operation.[test resume_operation leaves an operation to a process that reports]
AS
INSERT INTO rowpost.operation_log (operation_name, operation_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count, executor)
VALUES (N'retry', N'running', N'test', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -0, SYSUTCDATETIME()), 0, 0, 0, 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @operation bigint = SCOPE_IDENTITY();

EXEC rowpost.resume_operation @operation_id = @operation, @executor = 'aaaaaaaa-0000-0000-0000-000000000002';

DECLARE @right int = (SELECT COUNT(*) FROM rowpost.operation_log AS a WHERE a.executor = 'aaaaaaaa-0000-0000-0000-000000000001');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE operations_resume_operation.[test resume_operation forgets who had cancelled it]
AS
INSERT INTO rowpost.operation_log (operation_name, operation_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count, executor)
VALUES (N'retry', N'cancelled', N'test', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -0, SYSUTCDATETIME()), 0, 0, 0, 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @operation bigint = SCOPE_IDENTITY();

UPDATE a
SET a.cancelled_by = N'x', a.ended_at = SYSUTCDATETIME()
FROM rowpost.operation_log AS a
WHERE a.operation_id = @operation;
EXEC rowpost.resume_operation @operation_id = @operation, @executor = 'aaaaaaaa-0000-0000-0000-000000000002';

DECLARE @right int = (SELECT COUNT(*) FROM rowpost.operation_log AS a WHERE a.operation_state = N'running' AND a.cancelled_by IS NULL AND a.ended_at IS NULL);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE operations_resume_operation.[test resume_operation leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.resume_operation @operation_id = 1, @executor = 'aaaaaaaa-0000-0000-0000-000000000001';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
