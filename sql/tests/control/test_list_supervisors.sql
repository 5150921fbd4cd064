SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'control_list_supervisors';
GO
CREATE OR ALTER PROCEDURE control_list_supervisors.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE control_list_supervisors.[test list_supervisors lists by id and says how long each has been silent]
AS
CREATE TABLE #listed
(
    supervisor_id uniqueidentifier, host_name nvarchar(200), process_id int, environment nvarchar(200), rowpost_version nvarchar(50),
    login_name nvarchar(128), started_at datetime2(3), seen_at datetime2(3), silent_ms bigint, queues nvarchar(max), workers nvarchar(max)
);
INSERT INTO rowpost.supervisor (supervisor_id, host_name, process_id, environment, rowpost_version, login_name, started_at, seen_at, queues, workers)
VALUES
('aaaaaaaa-0000-0000-0000-000000000002', N'b', 8, N'e', N'1', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -5, SYSUTCDATETIME()), N'[]', N'[]'),
('aaaaaaaa-0000-0000-0000-000000000001', N'a', 8, N'e', N'1', N'x', SYSUTCDATETIME(), SYSUTCDATETIME(), N'[]', N'[]');

INSERT INTO #listed
(supervisor_id, host_name, process_id, environment, rowpost_version, login_name, started_at, seen_at, silent_ms, queues, workers)
EXEC rowpost.list_supervisors @count = 1, @after_id = 'aaaaaaaa-0000-0000-0000-000000000001';

DECLARE @right int = (SELECT COUNT(*) FROM #listed AS l WHERE l.host_name = N'b' AND l.silent_ms BETWEEN 290000 AND 400000);
DECLARE @rows int = (SELECT COUNT(*) FROM #listed AS l);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE control_list_supervisors.[test list_supervisors leaves out the older reports of a login that reports too much]
AS
-- Babelfish: DATALENGTH counts the bytes of UTF-8, one for a character that has two in nvarchar
CREATE TABLE #listed
(
    supervisor_id uniqueidentifier, host_name nvarchar(200), process_id int, environment nvarchar(200), rowpost_version nvarchar(50),
    login_name nvarchar(128), started_at datetime2(3), seen_at datetime2(3), silent_ms bigint, queues nvarchar(max), workers nvarchar(max)
);
DECLARE @long nvarchar(max) = REPLICATE(CONVERT(nvarchar(max), N'x'), 600000);
INSERT INTO rowpost.supervisor (supervisor_id, host_name, process_id, environment, rowpost_version, login_name, started_at, seen_at, queues, workers)
VALUES
('aaaaaaaa-0000-0000-0000-000000000001', N'a', 8, N'e', N'1', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -5, SYSUTCDATETIME()), N'[]', @long),
('aaaaaaaa-0000-0000-0000-000000000002', N'b', 8, N'e', N'1', N'x', SYSUTCDATETIME(), SYSUTCDATETIME(), N'[]', @long),
('aaaaaaaa-0000-0000-0000-000000000003', N'c', 8, N'e', N'1', N'y', SYSUTCDATETIME(), DATEADD(MINUTE, -5, SYSUTCDATETIME()), N'[]', @long);

INSERT INTO #listed
(supervisor_id, host_name, process_id, environment, rowpost_version, login_name, started_at, seen_at, silent_ms, queues, workers)
EXEC rowpost.list_supervisors @count = 10;

DECLARE @shown nvarchar(10) = (
    SELECT CONCAT(MIN(l.host_name), MAX(l.host_name))
    FROM #listed AS l
    WHERE l.workers IS NOT NULL AND l.queues IS NOT NULL
);
DECLARE @rows int = (SELECT COUNT(*) FROM #listed AS l);
EXEC tSQLt.AssertEquals @Expected = N'bc', @Actual = @shown;
EXEC tSQLt.AssertEquals @Expected = 3, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE control_list_supervisors.[test list_supervisors refuses a count of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.list_supervisors @count = 0;
GO
CREATE OR ALTER PROCEDURE control_list_supervisors.[test list_supervisors refuses a count above a thousand]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.list_supervisors @count = 1001;
GO
CREATE OR ALTER PROCEDURE control_list_supervisors.[test list_supervisors leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.list_supervisors @count = 10;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
