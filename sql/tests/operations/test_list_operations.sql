SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'operations_list_operations';
GO
CREATE OR ALTER PROCEDURE operations_list_operations.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE operations_list_operations.[test list_operations lists the last operation first and calls a silent one interrupted]
AS
CREATE TABLE #listed
(
    operation_id bigint, operation_name nvarchar(50), operation_state nvarchar(20), client nvarchar(50), login_name nvarchar(128), user_name nvarchar(200),
    queue_name nvarchar(400), message_id nvarchar(200), details nvarchar(4000), reason nvarchar(400), outcome nvarchar(1000), started_at datetime2(3),
    changed_at datetime2(3), ended_at datetime2(3), total_count bigint, done_count bigint, gone_count bigint, refused_count bigint, reached bigint,
    up_to bigint, cancelled_by nvarchar(400)
);
INSERT INTO rowpost.operation_log (operation_name, operation_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count)
VALUES (N'first', N'running', N'test', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -5, SYSUTCDATETIME()), 0, 0, 0);
DECLARE @first bigint = SCOPE_IDENTITY();
INSERT INTO rowpost.operation_log (operation_name, operation_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count)
VALUES (N'second', N'running', N'test', N'x', SYSUTCDATETIME(), SYSUTCDATETIME(), 0, 0, 0);
DECLARE @second bigint = SCOPE_IDENTITY();

INSERT INTO #listed
(
    operation_id, operation_name, operation_state, client, login_name, user_name, queue_name, message_id, details, reason, outcome, started_at,
    changed_at, ended_at, total_count, done_count, gone_count, refused_count, reached, up_to, cancelled_by
)
EXEC rowpost.list_operations @count = 1;
INSERT INTO #listed
(
    operation_id, operation_name, operation_state, client, login_name, user_name, queue_name, message_id, details, reason, outcome, started_at,
    changed_at, ended_at, total_count, done_count, gone_count, refused_count, reached, up_to, cancelled_by
)
EXEC rowpost.list_operations @count = 1, @before_id = @second;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM #listed AS l
    WHERE (l.operation_id = @second AND l.operation_state = N'running') OR (l.operation_id = @first AND l.operation_state = N'interrupted')
);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE operations_list_operations.[test list_operations refuses a count of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.list_operations @count = 0;
GO
CREATE OR ALTER PROCEDURE operations_list_operations.[test list_operations refuses a count above a thousand]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.list_operations @count = 1001;
GO
CREATE OR ALTER PROCEDURE operations_list_operations.[test list_operations leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.list_operations @count = 10;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
