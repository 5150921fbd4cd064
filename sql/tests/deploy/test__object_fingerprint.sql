SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'deploy__object_fingerprint';
GO
CREATE OR ALTER PROCEDURE deploy__object_fingerprint.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE deploy__object_fingerprint.[test _object_fingerprint lists the columns of a table]
AS
CREATE TABLE dbo.fingerprinted (a int NOT NULL, b nvarchar(10) NULL, c bigint IDENTITY (1, 1) NOT NULL);

DECLARE @fingerprint nvarchar(max) = rowpost."_object_fingerprint"('table', N'[dbo].[fingerprinted]');
DECLARE @lines int = LEN(@fingerprint) - LEN(REPLACE(@fingerprint, NCHAR(10), N'')) + 1;

EXEC tSQLt.AssertEquals @Expected = 3, @Actual = @lines;
IF @fingerprint NOT LIKE N'a int(%) not null' + NCHAR(10) + N'b nvarchar(20,%) null' + NCHAR(10) + N'c bigint(%) not null identity'
    EXEC tSQLt.Fail @Message0 = @fingerprint;
GO
CREATE OR ALTER PROCEDURE deploy__object_fingerprint.[test _object_fingerprint changes with a column]
AS
CREATE TABLE dbo.fingerprinted (a int NOT NULL);
DECLARE @before nvarchar(max) = rowpost."_object_fingerprint"('table', N'[dbo].[fingerprinted]');

ALTER TABLE dbo.fingerprinted ADD b int NULL;

DECLARE @after nvarchar(max) = rowpost."_object_fingerprint"('table', N'[dbo].[fingerprinted]');
IF @before = @after
    EXEC tSQLt.Fail @Message0 = @after;
GO
CREATE OR ALTER PROCEDURE deploy__object_fingerprint.[test _object_fingerprint is a hash of a procedures text]
AS
DECLARE @one nvarchar(max) = rowpost."_object_fingerprint"('procedure', N'rowpost.[send_message:Sample]');
DECLARE @other nvarchar(max) = rowpost."_object_fingerprint"('procedure', N'rowpost.get_version');
DECLARE @length int = LEN(@one);

EXEC tSQLt.AssertEquals @Expected = 64, @Actual = @length;
IF @one = @other OR @one LIKE N'%[^0-9a-f]%'
    EXEC tSQLt.Fail @Message0 = @one;
GO
CREATE OR ALTER PROCEDURE deploy__object_fingerprint.[test _object_fingerprint says of a schema that it is there]
AS
DECLARE @there nvarchar(max) = rowpost."_object_fingerprint"('schema', N'[rowpost]');
DECLARE @gone nvarchar(max) = rowpost."_object_fingerprint"('schema', N'[no such ]]schema]');

EXEC tSQLt.AssertEqualsString @Expected = N'schema', @Actual = @there;
EXEC tSQLt.AssertEqualsString @Expected = NULL, @Actual = @gone;
GO
CREATE OR ALTER PROCEDURE deploy__object_fingerprint.[test _object_fingerprint is NULL for what is not there]
AS
DECLARE @procedure nvarchar(max) = rowpost."_object_fingerprint"('procedure', N'rowpost.[no such thing'']; --]');
DECLARE @table nvarchar(max) = rowpost."_object_fingerprint"('table', N'rowpost.no_such_table');
DECLARE @nothing nvarchar(max) = rowpost."_object_fingerprint"(NULL, NULL);

EXEC tSQLt.AssertEqualsString @Expected = NULL, @Actual = @procedure;
EXEC tSQLt.AssertEqualsString @Expected = NULL, @Actual = @table;
EXEC tSQLt.AssertEqualsString @Expected = NULL, @Actual = @nothing;
GO
