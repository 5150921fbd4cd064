SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'registry_list_queues';
GO
CREATE OR ALTER PROCEDURE registry_list_queues.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE registry_list_queues.[test list_queues returns each entry as registered]
AS
CREATE TABLE #listed
(
    queue_name nvarchar(400), queue_key nvarchar(128), catalog_name sysname NULL, schema_name sysname, table_name sysname,
    kind varchar(10), body_string bit, [clustered] bit, delayed bit, lease bit, depth bigint
);
EXEC rowpost.register_queue
    @queue_key = N'Legacy~0', @queue_name = N'Legacy@[dbo]@[nsb]', @catalog_name = N'nsb', @schema_name = N'dbo',
    @table_name = N'Legacy', @kind = 'external', @body_string = 0, @clustered = 1, @delayed = 0;

INSERT INTO #listed (queue_name, queue_key, catalog_name, schema_name, table_name, kind, body_string, [clustered], delayed, lease, depth)
EXEC rowpost.list_queues;

DECLARE @own int = (
    SELECT COUNT(*) FROM #listed AS l WHERE l.queue_name = N'Sample' AND l.table_name = N'Sample' AND l.kind = 'own' AND l.lease = 1
);
DECLARE @external int = (
    SELECT COUNT(*) FROM #listed AS l WHERE l.catalog_name = N'nsb' AND l.kind = 'external' AND l.depth IS NULL
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @own;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @external;
GO
CREATE OR ALTER PROCEDURE registry_list_queues.[test list_queues knows the depth from the catalog]
AS
-- Babelfish: sys.partitions has no row counts
CREATE TABLE #listed
(
    queue_name nvarchar(400), queue_key nvarchar(128), catalog_name sysname NULL, schema_name sysname, table_name sysname,
    kind varchar(10), body_string bit, [clustered] bit, delayed bit, lease bit, depth bigint
);
EXEC rowpost.[send_message:Sample] @headers = N'';
EXEC rowpost.[send_message:Sample] @headers = N'';

INSERT INTO #listed (queue_name, queue_key, catalog_name, schema_name, table_name, kind, body_string, [clustered], delayed, lease, depth)
EXEC rowpost.list_queues;

DECLARE @depth bigint = (SELECT l.depth FROM #listed AS l WHERE l.queue_name = N'Sample');
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @depth;
GO
CREATE OR ALTER PROCEDURE registry_list_queues.[test list_queues leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.list_queues;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
