SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'deploy_list_unmanaged_objects';
GO
CREATE OR ALTER PROCEDURE deploy_list_unmanaged_objects.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE deploy_list_unmanaged_objects.[test list_unmanaged_objects finds none after a deployment]
AS
CREATE TABLE #unmanaged (object_kind varchar(10), object_name nvarchar(400));

INSERT INTO #unmanaged (object_kind, object_name)
EXEC rowpost.list_unmanaged_objects;

EXEC tSQLt.AssertEmptyTable @TableName = N'#unmanaged';
GO
CREATE OR ALTER PROCEDURE deploy_list_unmanaged_objects.[test list_unmanaged_objects names a table that no script made]
AS
CREATE TABLE #unmanaged (object_kind varchar(10), object_name nvarchar(400));
CREATE TABLE rowpost.stray (id int NOT NULL);

INSERT INTO #unmanaged (object_kind, object_name)
EXEC rowpost.list_unmanaged_objects;

DECLARE @kind nvarchar(10) = (SELECT s.object_kind FROM #unmanaged AS s WHERE s.object_name = N'rowpost.stray');
EXEC tSQLt.AssertEqualsString @Expected = N'table', @Actual = @kind;
GO
CREATE OR ALTER PROCEDURE deploy_list_unmanaged_objects.[test list_unmanaged_objects names a procedure that was forgotten]
AS
CREATE TABLE #unmanaged (object_kind varchar(10), object_name nvarchar(400));
EXEC rowpost.forget_script @script_name = N'procedures/deploy/get_version.sql';

INSERT INTO #unmanaged (object_kind, object_name)
EXEC rowpost.list_unmanaged_objects;

DECLARE @kind nvarchar(10) = (SELECT s.object_kind FROM #unmanaged AS s WHERE s.object_name = N'rowpost.get_version');
EXEC tSQLt.AssertEqualsString @Expected = N'procedure', @Actual = @kind;
GO
CREATE OR ALTER PROCEDURE deploy_list_unmanaged_objects.[test list_unmanaged_objects leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.list_unmanaged_objects;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
