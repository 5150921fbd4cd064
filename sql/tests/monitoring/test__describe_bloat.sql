SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'monitoring__describe_bloat';
GO
CREATE OR ALTER PROCEDURE monitoring__describe_bloat.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE monitoring__describe_bloat.[test _describe_bloat finds nothing in a small table]
AS
EXEC rowpost.[send_message:Sample] @headers = N'', @body = 0x01;

DECLARE @bloat nvarchar(200) = rowpost."_describe_bloat"(OBJECT_ID(N'dbo.Sample'));
EXEC tSQLt.AssertEqualsString @Expected = NULL, @Actual = @bloat;
GO
CREATE OR ALTER PROCEDURE monitoring__describe_bloat.[test _describe_bloat finds nothing in a table that is not there]
AS
DECLARE @bloat nvarchar(200) = rowpost."_describe_bloat"(NULL);
EXEC tSQLt.AssertEqualsString @Expected = NULL, @Actual = @bloat;
GO
CREATE OR ALTER PROCEDURE monitoring__describe_bloat.[test _describe_bloat finds a heap that kept its pages]
AS
-- Babelfish: its catalog knows no pages of a table
CREATE TABLE dbo.emptied (a int NOT NULL, b char(8000) NOT NULL);
INSERT INTO dbo.emptied (a, b)
SELECT TOP (1400) ROW_NUMBER() OVER (ORDER BY c.column_id), 'x'
FROM sys.columns AS c
CROSS JOIN sys.columns AS d;
-- without a lock of the table a heap keeps its emptied pages
DELETE e FROM dbo.emptied AS e WITH (ROWLOCK) WHERE e.a > 10;

DECLARE @bloat nvarchar(200) = rowpost."_describe_bloat"(OBJECT_ID(N'dbo.emptied'));
IF @bloat IS NULL OR @bloat NOT LIKE N'% pages of 8 KB hold 10 messages.'
    EXEC tSQLt.Fail @Message0 = @bloat;
GO
