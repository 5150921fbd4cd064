SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'control_report_supervisor';
GO
CREATE OR ALTER PROCEDURE control_report_supervisor.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE control_report_supervisor.[test report_supervisor keeps one row a supervisor with its last report]
AS
DECLARE @id uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC rowpost.report_supervisor
    @supervisor_id = @id, @host_name = N'h1', @process_id = 7, @environment = N'e', @rowpost_version = N'1', @queues = N'["Sample"]', @workers = N'[]';
EXEC rowpost.report_supervisor
    @supervisor_id = @id, @host_name = N'h1', @process_id = 7, @environment = N'e', @rowpost_version = N'1', @queues = N'["Sample"]',
    @workers = N'[{"queue":"Sample","process_id":1,"state":"idle","seconds":0.5}]';

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.supervisor AS s);
DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.supervisor AS s
    WHERE s.host_name = N'h1' AND s.process_id = 7 AND s.workers = N'[{"queue":"Sample","process_id":1,"state":"idle","seconds":0.5}]'
      AND s.login_name = ORIGINAL_LOGIN()
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE control_report_supervisor.[test report_supervisor records the queues that are registered]
AS
DECLARE @id uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC rowpost.report_supervisor
    @supervisor_id = @id, @host_name = N'h1', @process_id = 7, @environment = N'e', @rowpost_version = N'1',
    @queues = N'["Sample","nowhere"]', @workers = N'[]';

DECLARE @keys nvarchar(128) = (SELECT q.queue_key FROM rowpost.supervised_queue AS q WHERE q.supervisor_id = @id);
EXEC tSQLt.AssertEquals @Expected = N'Sample', @Actual = @keys;
GO
CREATE OR ALTER PROCEDURE control_report_supervisor.[test report_supervisor forgets a queue that is not received from any more]
AS
DECLARE @id uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC rowpost.report_supervisor
    @supervisor_id = @id, @host_name = N'h1', @process_id = 7, @environment = N'e', @rowpost_version = N'1', @queues = N'["Sample"]', @workers = N'[]';
EXEC rowpost.report_supervisor
    @supervisor_id = @id, @host_name = N'h1', @process_id = 7, @environment = N'e', @rowpost_version = N'1', @queues = N'[]', @workers = N'[]';

EXEC tSQLt.AssertEmptyTable @TableName = N'rowpost.supervised_queue';
GO
CREATE OR ALTER PROCEDURE control_report_supervisor.[test report_supervisor lists a supervisor that has ended no more]
AS
DECLARE @id uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC rowpost.report_supervisor
    @supervisor_id = @id, @host_name = N'h1', @process_id = 7, @environment = N'e', @rowpost_version = N'1', @queues = N'["Sample"]', @workers = N'[]';
EXEC rowpost.report_supervisor
    @supervisor_id = @id, @host_name = N'h1', @process_id = 7, @environment = N'e', @rowpost_version = N'1', @queues = N'[]', @workers = N'[]', @ended = 1;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.supervisor AS s) + (SELECT COUNT(*) FROM rowpost.supervised_queue AS q);
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE control_report_supervisor.[test report_supervisor changes no row of another login]
AS
DECLARE @id uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000001';
INSERT INTO rowpost.supervisor (supervisor_id, host_name, process_id, environment, rowpost_version, login_name, started_at, seen_at, queues, workers)
VALUES (@id, N'h2', 8, N'e', N'1', N'somebody else', SYSUTCDATETIME(), SYSUTCDATETIME(), N'[]', N'[]');

EXEC rowpost.report_supervisor
    @supervisor_id = @id, @host_name = N'h1', @process_id = 7, @environment = N'e', @rowpost_version = N'1', @queues = N'["Sample"]',
    @workers = N'[{"queue":"Sample","process_id":1,"state":"idle","seconds":0.5}]';
EXEC rowpost.report_supervisor
    @supervisor_id = @id, @host_name = N'h1', @process_id = 7, @environment = N'e', @rowpost_version = N'1', @queues = N'[]', @workers = N'[]', @ended = 1;

DECLARE @kept int = (SELECT COUNT(*) FROM rowpost.supervisor AS s WHERE s.host_name = N'h2' AND s.workers = N'[]');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @kept;
EXEC tSQLt.AssertEmptyTable @TableName = N'rowpost.supervised_queue';
GO
CREATE OR ALTER PROCEDURE control_report_supervisor.[test report_supervisor deletes those that have been silent for a day when one starts]
AS
DECLARE @old uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000002';
DECLARE @id uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000001';
INSERT INTO rowpost.supervisor (supervisor_id, host_name, process_id, environment, rowpost_version, login_name, started_at, seen_at, queues, workers)
VALUES (@old, N'h2', 8, N'e', N'1', N'x', SYSUTCDATETIME(), DATEADD(HOUR, -25, SYSUTCDATETIME()), N'[]', N'[]');
INSERT INTO rowpost.supervised_queue (queue_key, supervisor_id) VALUES (N'Sample', @old);

EXEC rowpost.report_supervisor
    @supervisor_id = @id, @host_name = N'h1', @process_id = 7, @environment = N'e', @rowpost_version = N'1', @queues = N'[]', @workers = N'[]';

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.supervisor AS s) + (SELECT COUNT(*) FROM rowpost.supervised_queue AS q);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE control_report_supervisor.[test report_supervisor refuses workers that are no objects]
AS
DECLARE @id uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51033;

EXEC rowpost.report_supervisor
    @supervisor_id = @id, @host_name = N'h1', @process_id = 7, @environment = N'e', @rowpost_version = N'1', @queues = N'[]',
    @workers = N'[1]';
GO
CREATE OR ALTER PROCEDURE control_report_supervisor.[test report_supervisor refuses a worker without its values]
AS
DECLARE @id uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51033;

EXEC rowpost.report_supervisor
    @supervisor_id = @id, @host_name = N'h1', @process_id = 7, @environment = N'e', @rowpost_version = N'1', @queues = N'[]',
    @workers = N'[{}]';
GO
CREATE OR ALTER PROCEDURE control_report_supervisor.[test report_supervisor refuses what is no array]
AS
DECLARE @id uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51033;

EXEC rowpost.report_supervisor
    @supervisor_id = @id, @host_name = N'h1', @process_id = 7, @environment = N'e', @rowpost_version = N'1', @queues = N'{}',
    @workers = N'[]';
GO
CREATE OR ALTER PROCEDURE control_report_supervisor.[test report_supervisor refuses what is no JSON]
AS
DECLARE @id uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51033;

EXEC rowpost.report_supervisor
    @supervisor_id = @id, @host_name = N'h1', @process_id = 7, @environment = N'e', @rowpost_version = N'1', @queues = N'[]',
    @workers = N'[';
GO
CREATE OR ALTER PROCEDURE control_report_supervisor.[test report_supervisor refuses a worker of a wrong type]
AS
DECLARE @id uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51033;

EXEC rowpost.report_supervisor
    @supervisor_id = @id, @host_name = N'h1', @process_id = 7, @environment = N'e', @rowpost_version = N'1', @queues = N'[]',
    @workers = N'[{"queue":1,"process_id":1,"state":"idle","seconds":0}]';
GO
CREATE OR ALTER PROCEDURE control_report_supervisor.[test report_supervisor leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;
DECLARE @id uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000001';

EXEC rowpost.report_supervisor
    @supervisor_id = @id, @host_name = N'h1', @process_id = 7, @environment = N'e', @rowpost_version = N'1', @queues = N'[]', @workers = N'[]';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
