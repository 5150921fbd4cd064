SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'deploy_has_rows';
GO
CREATE OR ALTER PROCEDURE deploy_has_rows.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE deploy_has_rows.[test has_rows tells a table with rows from an empty one]
AS
CREATE TABLE #answers (has_rows bit);
DELETE f
FROM rowpost.failure AS f;

INSERT INTO #answers (has_rows)
EXEC rowpost.has_rows @script_name = N'tables/002_journal.sql';
DECLARE @filled int = (SELECT COUNT(*) FROM #answers AS a WHERE a.has_rows = 1);
INSERT INTO #answers (has_rows)
EXEC rowpost.has_rows @script_name = N'tables/005_failure.sql';
DECLARE @empty int = (SELECT COUNT(*) FROM #answers AS a WHERE a.has_rows = 0);

EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @filled;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @empty;
GO
CREATE OR ALTER PROCEDURE deploy_has_rows.[test has_rows reads only tables of the journal]
AS
CREATE TABLE #answers (has_rows bit);
EXEC rowpost.record_script
    @script_name = N'tables/gone.sql', @script_kind = 'anytime', @script_hash = 'a',
    @object_kind = 'table', @object_name = N'rowpost.[gone]; DELETE FROM rowpost.journal; --';

INSERT INTO #answers (has_rows)
EXEC rowpost.has_rows @script_name = N'tables/gone.sql';
INSERT INTO #answers (has_rows)
EXEC rowpost.has_rows @script_name = N'rowpost.journal';
INSERT INTO #answers (has_rows)
EXEC rowpost.has_rows @script_name = N'procedures/deploy/has_rows.sql';

DECLARE @none int = (SELECT COUNT(*) FROM #answers AS a WHERE a.has_rows = 0);
EXEC tSQLt.AssertEquals @Expected = 3, @Actual = @none;
GO
CREATE OR ALTER PROCEDURE deploy_has_rows.[test has_rows leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.has_rows @script_name = N'tables/002_journal.sql';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
