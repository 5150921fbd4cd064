SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'queue_read_bodies';
GO
CREATE OR ALTER PROCEDURE queue_read_bodies.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE queue_read_bodies.[test read_bodies returns the bodies that were asked for and takes none]
AS
CREATE TABLE #bodies (row_version bigint, body varbinary(max));
EXEC rowpost.[send_message:Sample] @headers = N'a', @body = 0x00FF;
EXEC rowpost.[send_message:Sample] @headers = N'b', @body = 0x01;
EXEC rowpost.[send_message:Sample] @headers = N'c';
DECLARE @wanted nvarchar(max) = (
    SELECT CONCAT(N'["', MIN(s.RowVersion), N'","', MAX(s.RowVersion), N'","x"]') FROM dbo.Sample AS s
);

INSERT INTO #bodies (row_version, body)
EXEC rowpost.[read_bodies:Sample] @row_versions = @wanted;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM #bodies AS b
    INNER JOIN dbo.Sample AS s
        ON b.row_version = s.RowVersion
    WHERE (s.Headers = N'a' AND b.body = 0x00FF) OR (s.Headers = N'c' AND b.body IS NULL)
);
DECLARE @all int = (SELECT COUNT(*) FROM #bodies AS b);
DECLARE @stored int = (SELECT COUNT(*) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @right;
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @all;
EXEC tSQLt.AssertEquals @Expected = 3, @Actual = @stored;
GO
CREATE OR ALTER PROCEDURE queue_read_bodies.[test read_bodies cuts bodies]
AS
CREATE TABLE #bodies (row_version bigint, body varbinary(max));
EXEC rowpost.[send_message:Sample] @headers = N'', @body = 0x01020304;
DECLARE @wanted nvarchar(max) = (SELECT CONCAT(N'["', s.RowVersion, N'"]') FROM dbo.Sample AS s);

INSERT INTO #bodies (row_version, body)
EXEC rowpost.[read_bodies:Sample] @row_versions = @wanted, @max_body_bytes = 3;

DECLARE @cut int = (SELECT COUNT(*) FROM #bodies AS b WHERE b.body = 0x010203);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @cut;
GO
CREATE OR ALTER PROCEDURE queue_read_bodies.[test read_bodies leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[read_bodies:Sample] @row_versions = N'["1"]';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
