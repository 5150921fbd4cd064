SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'operations_clean_operation_log';
GO
CREATE OR ALTER PROCEDURE operations_clean_operation_log.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE operations_clean_operation_log.[test clean_operation_log deletes old operations but none that goes on]
AS
INSERT INTO rowpost.operation_log (operation_name, operation_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count)
VALUES
(N'old', N'done', N'test', N'x', DATEADD(DAY, -9, SYSUTCDATETIME()), DATEADD(DAY, -9, SYSUTCDATETIME()), 1, 0, 0),
(N'silent', N'running', N'test', N'x', DATEADD(DAY, -9, SYSUTCDATETIME()), DATEADD(DAY, -9, SYSUTCDATETIME()), 1, 0, 0),
(N'going', N'running', N'test', N'x', DATEADD(DAY, -9, SYSUTCDATETIME()), SYSUTCDATETIME(), 1, 0, 0),
(N'new', N'done', N'test', N'x', SYSUTCDATETIME(), SYSUTCDATETIME(), 1, 0, 0);

EXEC rowpost.clean_operation_log @retention_seconds = 86400, @count = 4000;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.operation_log AS a);
DECLARE @kept int = (SELECT COUNT(*) FROM rowpost.operation_log AS a WHERE a.operation_name IN (N'going', N'new'));
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @rows;
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @kept;
GO
CREATE OR ALTER PROCEDURE operations_clean_operation_log.[test clean_operation_log deletes no more than count]
AS
INSERT INTO rowpost.operation_log (operation_name, operation_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count)
VALUES
(N'old', N'done', N'test', N'x', DATEADD(DAY, -9, SYSUTCDATETIME()), DATEADD(DAY, -9, SYSUTCDATETIME()), 1, 0, 0),
(N'old', N'done', N'test', N'x', DATEADD(DAY, -9, SYSUTCDATETIME()), DATEADD(DAY, -9, SYSUTCDATETIME()), 1, 0, 0);

EXEC rowpost.clean_operation_log @retention_seconds = 0, @count = 1;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.operation_log AS a);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE operations_clean_operation_log.[test clean_operation_log refuses a count of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.clean_operation_log @retention_seconds = 0, @count = 0;
GO
CREATE OR ALTER PROCEDURE operations_clean_operation_log.[test clean_operation_log refuses a negative retention time]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.clean_operation_log @retention_seconds = -1, @count = 1;
GO
CREATE OR ALTER PROCEDURE operations_clean_operation_log.[test clean_operation_log leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.clean_operation_log @retention_seconds = 0, @count = 10;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
