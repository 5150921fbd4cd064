SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'registry_check_queue';
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[test check_queue finds nothing in a new queue]
AS
CREATE TABLE #findings (queue_name nvarchar(400), finding nvarchar(100), detail nvarchar(max), remedy nvarchar(max));

INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;

EXEC tSQLt.AssertEmptyTable @TableName = N'#findings';
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[test check_queue checks one queue alone when it is named]
AS
-- Babelfish: INSERT EXEC takes no procedure that calls another one
CREATE TABLE #findings (queue_name nvarchar(400), finding nvarchar(100), detail nvarchar(max), remedy nvarchar(max));
DROP INDEX Index_Expires ON dbo.Sample;
EXEC rowpost.register_queue
    @queue_key = N'Gone', @queue_name = N'Gone', @schema_name = N'dbo', @table_name = N'Gone',
    @kind = 'own', @body_string = 0, @clustered = 1, @delayed = 0;

INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue @queue_name = N'Sample';

DECLARE @found nvarchar(100) = (SELECT f.finding FROM #findings AS f);
EXEC tSQLt.AssertEqualsString @Expected = N'expires_index_missing', @Actual = @found;
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[test check_queue names a missing index and its remedy mends it]
AS
CREATE TABLE #findings (queue_name nvarchar(400), finding nvarchar(100), detail nvarchar(max), remedy nvarchar(max));
DROP INDEX Index_Expires ON dbo.Sample;

INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;
DECLARE @remedy nvarchar(max) = (SELECT f.remedy FROM #findings AS f WHERE f.finding = N'expires_index_missing');
EXEC (@remedy);
DELETE f FROM #findings AS f;
INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;

EXEC tSQLt.AssertEmptyTable @TableName = N'#findings';
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[test check_queue names a missing row version index]
AS
CREATE TABLE #findings (queue_name nvarchar(400), finding nvarchar(100), detail nvarchar(max), remedy nvarchar(max));
DROP INDEX Index_RowVersion ON dbo.Sample;

INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;

DECLARE @found int = (SELECT COUNT(*) FROM #findings AS f WHERE f.finding = N'row_version_index_missing');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @found;
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[test check_queue names a missing column and procedure]
AS
CREATE TABLE #findings (queue_name nvarchar(400), finding nvarchar(100), detail nvarchar(max), remedy nvarchar(max));
CREATE TABLE dbo.half_a_queue (Id uniqueidentifier NOT NULL, Headers nvarchar(max) NOT NULL, RowVersion bigint NOT NULL);
EXEC rowpost.register_queue
    @queue_key = N'half_a_queue', @queue_name = N'half_a_queue', @schema_name = N'dbo', @table_name = N'half_a_queue',
    @kind = 'own', @body_string = 0, @clustered = 1, @delayed = 1, @lease = 1;

INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;

DECLARE @columns int = (SELECT COUNT(*) FROM #findings AS f WHERE f.finding = N'column_missing');
DECLARE @procedures int = (SELECT COUNT(*) FROM #findings AS f WHERE f.finding = N'procedure_missing');
DECLARE @all int = (SELECT COUNT(*) FROM sys.procedures AS p WHERE p.name LIKE N'%:Sample');
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @columns;
EXEC tSQLt.AssertEquals @Expected = @all, @Actual = @procedures;
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[test check_queue names a table that is not there]
AS
CREATE TABLE #findings (queue_name nvarchar(400), finding nvarchar(100), detail nvarchar(max), remedy nvarchar(max));
EXEC rowpost.register_queue
    @queue_key = N'Gone', @queue_name = N'Gone', @schema_name = N'dbo', @table_name = N'Gone',
    @kind = 'adopted', @body_string = 0, @clustered = 1, @delayed = 0;

INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;

DECLARE @found int = (SELECT COUNT(*) FROM #findings AS f WHERE f.finding = N'table_missing');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @found;
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[test check_queue names columns that lose text]
AS
CREATE TABLE #findings (queue_name nvarchar(400), finding nvarchar(100), detail nvarchar(max), remedy nvarchar(max));
CREATE TABLE dbo.narrow
(
    Id uniqueidentifier NOT NULL,
    Recoverable bit NOT NULL,
    Expires datetime NULL,
    Headers varchar(8000) NOT NULL,
    Body varbinary(100) NULL,
    RowVersion bigint NOT NULL
);
EXEC rowpost.register_queue
    @queue_key = N'narrow', @queue_name = N'narrow', @schema_name = N'dbo', @table_name = N'narrow',
    @kind = 'external', @body_string = 0, @clustered = 1, @delayed = 0;

INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;

DECLARE @varchar int = (SELECT COUNT(*) FROM #findings AS f WHERE f.finding = N'headers_varchar');
DECLARE @shrunk int = (SELECT COUNT(*) FROM #findings AS f WHERE f.finding = N'column_shrunk');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @varchar;
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @shrunk;
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[test check_queue names a procedure that does not fit the column Recoverable]
AS
CREATE TABLE #findings (queue_name nvarchar(400), finding nvarchar(100), detail nvarchar(max), remedy nvarchar(max));
CREATE TABLE dbo.by_installer (Id uniqueidentifier NOT NULL, Recoverable bit NOT NULL);
EXEC rowpost.register_queue
    @queue_key = N'by_installer', @queue_name = N'by_installer', @schema_name = N'dbo', @table_name = N'by_installer',
    @kind = 'external', @body_string = 0, @clustered = 0, @delayed = 0;
EXEC (N'CREATE PROCEDURE rowpost.[send_message:by_installer] AS INSERT INTO dbo.by_installer (Id /*, Recoverable */) VALUES (NEWID() /*, 1 */);');

INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;

SELECT f.queue_name, f.finding, f.remedy INTO #actual FROM #findings AS f WHERE f.finding = N'recoverable_changed';
SELECT TOP (0) a.queue_name, a.finding, a.remedy INTO #expected FROM #actual AS a;
INSERT INTO #expected (queue_name, finding, remedy) VALUES (N'by_installer', N'recoverable_changed', N'rowpost apply');
EXEC tSQLt.AssertEqualsTable @Expected = N'#expected', @Actual = N'#actual';
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[test check_queue names a mandatory column and its remedy mends it]
AS
-- Babelfish: ALTER COLUMN takes no NULL
CREATE TABLE #findings (queue_name nvarchar(400), finding nvarchar(100), detail nvarchar(max), remedy nvarchar(max));
ALTER TABLE dbo.Sample ADD tenant nvarchar(20) NOT NULL;
ALTER TABLE dbo.Sample ADD made datetime2(3) NOT NULL DEFAULT (SYSUTCDATETIME());

INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;
DECLARE @found nvarchar(100) = (SELECT f.finding FROM #findings AS f);
DECLARE @remedy nvarchar(max) = (SELECT f.remedy FROM #findings AS f);
EXEC (@remedy);
DELETE f FROM #findings AS f;
INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;

EXEC tSQLt.AssertEqualsString @Expected = N'column_mandatory', @Actual = @found;
EXEC tSQLt.AssertEmptyTable @TableName = N'#findings';
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[test check_queue names a clustered index where the registry says heap]
AS
-- Babelfish: has no clustered indexes
CREATE TABLE #findings (queue_name nvarchar(400), finding nvarchar(100), detail nvarchar(max), remedy nvarchar(max));
EXEC rowpost.register_queue
    @queue_key = N'Sample', @queue_name = N'Sample', @schema_name = N'dbo', @table_name = N'Sample',
    @kind = 'own', @body_string = 0, @clustered = 0, @delayed = 0;

INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;

DECLARE @found int = (SELECT COUNT(*) FROM #findings AS f WHERE f.finding = N'row_version_index_clustered');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @found;
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[test check_queue checks all queues when none is named]
AS
CREATE TABLE #findings (queue_name nvarchar(400), finding nvarchar(100), detail nvarchar(max), remedy nvarchar(max));
EXEC rowpost.register_queue
    @queue_key = N'Gone', @queue_name = N'Gone', @schema_name = N'dbo', @table_name = N'Gone',
    @kind = 'own', @body_string = 0, @clustered = 1, @delayed = 1, @lease = 1;
EXEC rowpost.register_queue
    @queue_key = N'There', @queue_name = N'Gone@[dbo]@[There]', @catalog_name = N'There', @schema_name = N'dbo',
    @table_name = N'Gone', @kind = 'external', @body_string = 0, @clustered = 1, @delayed = 0;

INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;

DECLARE @found int = (SELECT COUNT(*) FROM #findings AS f WHERE f.queue_name = N'Gone');
DECLARE @all int = (SELECT 1 + COUNT(*) FROM sys.procedures AS p WHERE p.name LIKE N'%:Sample'); -- and the table
DECLARE @others int = (SELECT COUNT(*) FROM #findings AS f WHERE f.queue_name <> N'Gone');
EXEC tSQLt.AssertEquals @Expected = @all, @Actual = @found;
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @others;
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[test check_queue quotes hostile names in its remedies]
AS
-- Babelfish: its parser takes no closing bracket in a name
CREATE TABLE #findings (queue_name nvarchar(400), finding nvarchar(100), detail nvarchar(max), remedy nvarchar(max));
EXEC (N'CREATE TABLE dbo.[x]]; DROP TABLE dbo.Sample; --] (Id uniqueidentifier NOT NULL);');
EXEC rowpost.register_queue
    @queue_key = N'hostile', @queue_name = N'hostile', @schema_name = N'dbo', @table_name = N'x]; DROP TABLE dbo.Sample; --',
    @kind = 'own', @body_string = 0, @clustered = 1, @delayed = 0;

INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;

DECLARE @quoted int = (
    SELECT COUNT(*)
    FROM #findings AS f
    WHERE f.finding = N'column_missing' AND f.remedy LIKE N'ALTER TABLE [[]dbo].[[]x]]; DROP TABLE dbo.Sample; --] ADD %'
);
EXEC tSQLt.AssertEquals @Expected = 4, @Actual = @quoted;
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[test check_queue refuses a queue that is not registered]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.check_queue @queue_name = N'Nowhere';
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[test check_queue leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.check_queue @queue_name = N'Sample';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[test check_queue names an enabled trigger and its remedy mends it]
AS
-- Babelfish: has no ALTER TABLE … DISABLE TRIGGER
CREATE TABLE #findings (queue_name nvarchar(400), finding nvarchar(100), detail nvarchar(max), remedy nvarchar(max));
EXEC (N'CREATE TRIGGER dbo.watched ON dbo.Sample AFTER INSERT AS SELECT 1;');

INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;
DECLARE @found int = (SELECT COUNT(*) FROM #findings AS f WHERE f.finding = N'trigger_enabled');
DECLARE @remedy nvarchar(max) = (SELECT f.remedy FROM #findings AS f WHERE f.finding = N'trigger_enabled');
EXEC (@remedy);
DELETE f FROM #findings AS f;
INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;

EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @found;
EXEC tSQLt.AssertEmptyTable @TableName = N'#findings';
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[test check_queue names a table of another owner and its remedy mends it]
AS
-- Babelfish: has no ALTER AUTHORIZATION ON OBJECT
CREATE TABLE #findings (queue_name nvarchar(400), finding nvarchar(100), detail nvarchar(max), remedy nvarchar(max));
EXEC (N'ALTER AUTHORIZATION ON OBJECT::dbo.Sample TO rowpost_operator;');

INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;
DECLARE @found int = (SELECT COUNT(*) FROM #findings AS f WHERE f.finding = N'owner_differs');
DECLARE @remedy nvarchar(max) = (SELECT f.remedy FROM #findings AS f WHERE f.finding = N'owner_differs');
EXEC (@remedy);
DELETE f FROM #findings AS f;
INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;

EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @found;
EXEC tSQLt.AssertEmptyTable @TableName = N'#findings';
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[test check_queue names a disabled index and its remedy mends it]
AS
-- Babelfish: has no ALTER INDEX
CREATE TABLE #findings (queue_name nvarchar(400), finding nvarchar(100), detail nvarchar(max), remedy nvarchar(max));
EXEC (N'ALTER INDEX Index_Expires ON dbo.Sample DISABLE;');

INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;
DECLARE @found nvarchar(100) = (SELECT f.finding FROM #findings AS f);
DECLARE @remedy nvarchar(max) = (SELECT f.remedy FROM #findings AS f);
EXEC (@remedy);
DELETE f FROM #findings AS f;
INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;

EXEC tSQLt.AssertEqualsString @Expected = N'index_disabled', @Actual = @found;
EXEC tSQLt.AssertEmptyTable @TableName = N'#findings';
GO
CREATE OR ALTER PROCEDURE registry_check_queue.[test check_queue names a table whose locks escalate and its remedy mends it]
AS
-- Babelfish: has no LOCK_ESCALATION in its catalog
CREATE TABLE #findings (queue_name nvarchar(400), finding nvarchar(100), detail nvarchar(max), remedy nvarchar(max));
EXEC (N'ALTER TABLE dbo.Sample SET (LOCK_ESCALATION = TABLE);');

INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;
DECLARE @found nvarchar(100) = (SELECT f.finding FROM #findings AS f);
DECLARE @remedy nvarchar(max) = (SELECT f.remedy FROM #findings AS f);
EXEC (@remedy);
DELETE f FROM #findings AS f;
INSERT INTO #findings (queue_name, finding, detail, remedy)
EXEC rowpost.check_queue;

EXEC tSQLt.AssertEqualsString @Expected = N'lock_escalation', @Actual = @found;
EXEC tSQLt.AssertEmptyTable @TableName = N'#findings';
GO
