SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'deploy_record_script';
GO
CREATE OR ALTER PROCEDURE deploy_record_script.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE deploy_record_script.[test record_script writes what ran with its objects fingerprint]
AS
DECLARE @hash char(64) = REPLICATE('a', 64);

EXEC rowpost.record_script
    @script_name = N'procedures/x.sql', @script_kind = 'anytime', @script_hash = @hash,
    @object_kind = 'procedure', @object_name = N'rowpost.[get_version]';

DECLARE @as_given int = (
    SELECT COUNT(*)
    FROM rowpost.journal AS j
    WHERE j.script_name = N'procedures/x.sql'
      AND j.script_kind = 'anytime'
      AND j.script_hash = @hash
      AND j.object_name = N'rowpost.[get_version]'
      AND LEN(j.object_fingerprint) = 64
      AND j.applied_by = SUSER_SNAME()
      AND ABS(DATEDIFF(SECOND, j.applied_at, SYSUTCDATETIME())) < 60
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @as_given;
GO
CREATE OR ALTER PROCEDURE deploy_record_script.[test record_script replaces the entry of the same script]
AS
DECLARE @first char(64) = REPLICATE('a', 64);
DECLARE @second char(64) = REPLICATE('b', 64);
EXEC rowpost.record_script @script_name = N'procedures/x.sql', @script_kind = 'anytime', @script_hash = @first;

EXEC rowpost.record_script @script_name = N'procedures/x.sql', @script_kind = 'anytime', @script_hash = @second;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.journal AS j WHERE j.script_name = N'procedures/x.sql');
DECLARE @hash nvarchar(64) = (SELECT j.script_hash FROM rowpost.journal AS j WHERE j.script_name = N'procedures/x.sql');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
EXEC tSQLt.AssertEqualsString @Expected = @second, @Actual = @hash;
GO
CREATE OR ALTER PROCEDURE deploy_record_script.[test record_script refuses a script of once that was edited]
AS
DECLARE @first char(64) = REPLICATE('a', 64);
DECLARE @second char(64) = REPLICATE('b', 64);
EXEC rowpost.record_script @script_name = N'tables/999_x.sql', @script_kind = 'once', @script_hash = @first;
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51007;

EXEC rowpost.record_script @script_name = N'tables/999_x.sql', @script_kind = 'once', @script_hash = @second;
GO
CREATE OR ALTER PROCEDURE deploy_record_script.[test record_script takes the same script of once again]
AS
DECLARE @hash char(64) = REPLICATE('a', 64);
EXEC rowpost.record_script @script_name = N'tables/999_x.sql', @script_kind = 'once', @script_hash = @hash;

EXEC rowpost.record_script @script_name = N'tables/999_x.sql', @script_kind = 'once', @script_hash = @hash;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.journal AS j WHERE j.script_name = N'tables/999_x.sql');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE deploy_record_script.[test record_script takes a name that looks like SQL as a name]
AS
DECLARE @hash char(64) = REPLICATE('a', 64);
DECLARE @name nvarchar(400) = N'''; DELETE FROM rowpost.journal; --';

EXEC rowpost.record_script
    @script_name = @name, @script_kind = 'anytime', @script_hash = @hash, @object_kind = 'table', @object_name = @name;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.journal AS j WHERE j.script_name = @name AND j.object_fingerprint IS NULL);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE deploy_record_script.[test record_script is undone by the callers rollback]
AS
DECLARE @hash char(64) = REPLICATE('a', 64);
SAVE TRANSACTION before_it;

EXEC rowpost.record_script @script_name = N'procedures/x.sql', @script_kind = 'anytime', @script_hash = @hash;
ROLLBACK TRANSACTION before_it;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.journal AS j WHERE j.script_name = N'procedures/x.sql');
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE deploy_record_script.[test record_script refuses a hash of 65 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51034;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 65);

EXEC rowpost.record_script @script_name = N'x.sql', @script_kind = 'anytime', @script_hash = @long;
GO
CREATE OR ALTER PROCEDURE deploy_record_script.[test record_script leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.record_script @script_name = N'procedures/x.sql', @script_kind = 'anytime', @script_hash = 'a';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
CREATE OR ALTER PROCEDURE deploy_record_script.[test record_script keeps the longest name that an object can have]
AS
DECLARE @name nvarchar(max) = CONCAT(N'[', REPLICATE(N']]', 128), N'].[', REPLICATE(N']]', 128), N']');
DECLARE @hash char(64) = REPLICATE('a', 64);

EXEC rowpost.record_script
    @script_name = N'x.sql', @script_kind = 'anytime', @script_hash = @hash, @object_kind = 'table', @object_name = @name;

DECLARE @kept nvarchar(max) = (SELECT j.object_name FROM rowpost.journal AS j WHERE j.script_name = N'x.sql');
EXEC tSQLt.AssertEqualsString @Expected = @name, @Actual = @kept;
GO
