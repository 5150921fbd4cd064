SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'deploy_list_scripts';
GO
CREATE OR ALTER PROCEDURE deploy_list_scripts.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE deploy_list_scripts.[test list_scripts shows recorded and living fingerprints]
AS
CREATE TABLE #listed
(
    script_name nvarchar(400), script_kind varchar(10), script_hash char(64), object_kind varchar(10), object_name nvarchar(400),
    recorded_fingerprint nvarchar(max), living_fingerprint nvarchar(max), applied_at datetime2(3), applied_by nvarchar(256)
);
EXEC rowpost.record_script
    @script_name = N'procedures/gone.sql', @script_kind = 'anytime', @script_hash = 'a',
    @object_kind = 'procedure', @object_name = N'rowpost.[no_such_procedure]';

INSERT INTO #listed
(
    script_name, script_kind, script_hash, object_kind, object_name,
    recorded_fingerprint, living_fingerprint, applied_at, applied_by
)
EXEC rowpost.list_scripts;

DECLARE @journal int = (SELECT COUNT(*) FROM rowpost.journal AS j);
DECLARE @listed int = (SELECT COUNT(*) FROM #listed AS l);
DECLARE @changed int = (
    SELECT COUNT(*) FROM #listed AS l WHERE l.object_kind = 'procedure' AND l.recorded_fingerprint <> l.living_fingerprint
);
DECLARE @gone int = (SELECT COUNT(*) FROM #listed AS l WHERE l.script_name = N'procedures/gone.sql' AND l.living_fingerprint IS NULL);
EXEC tSQLt.AssertEquals @Expected = @journal, @Actual = @listed;
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @changed;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @gone;
GO
CREATE OR ALTER PROCEDURE deploy_list_scripts.[test list_scripts shows an INSERT that does not name a mandatory Recoverable]
AS
CREATE TABLE #listed
(
    script_name nvarchar(400), script_kind varchar(10), script_hash char(64), object_kind varchar(10), object_name nvarchar(400),
    recorded_fingerprint nvarchar(max), living_fingerprint nvarchar(max), applied_at datetime2(3), applied_by nvarchar(256)
);
CREATE TABLE dbo.by_installer (Id uniqueidentifier NOT NULL, Recoverable bit NOT NULL);
EXEC rowpost.register_queue
    @queue_key = N'by_installer', @queue_name = N'by_installer', @schema_name = N'dbo', @table_name = N'by_installer',
    @kind = 'external', @body_string = 0, @clustered = 0, @delayed = 0;
EXEC (N'CREATE PROCEDURE rowpost.[send_message:by_installer] AS INSERT INTO dbo.by_installer (Id /*, Recoverable */) VALUES (NEWID() /*, 1 */);');
EXEC rowpost.record_script
    @script_name = N'procedures/queue/send_message.sql:by_installer', @script_kind = 'anytime', @script_hash = 'a',
    @object_kind = 'procedure', @object_name = N'rowpost.[send_message:by_installer]';

INSERT INTO #listed
(
    script_name, script_kind, script_hash, object_kind, object_name,
    recorded_fingerprint, living_fingerprint, applied_at, applied_by
)
EXEC rowpost.list_scripts;

DECLARE @living nvarchar(max) = (
    SELECT l.living_fingerprint FROM #listed AS l WHERE l.script_name = N'procedures/queue/send_message.sql:by_installer'
);
EXEC tSQLt.AssertEqualsString @Expected = N'misfit', @Actual = @living;
GO
CREATE OR ALTER PROCEDURE deploy_list_scripts.[test list_scripts leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.list_scripts;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
