SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'deploy_forget_script';
GO
CREATE OR ALTER PROCEDURE deploy_forget_script.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE deploy_forget_script.[test forget_script removes that entry alone]
AS
DECLARE @before int = (SELECT COUNT(*) FROM rowpost.journal AS j);
EXEC rowpost.record_script @script_name = N'procedures/x.sql', @script_kind = 'anytime', @script_hash = 'a';

EXEC rowpost.forget_script @script_name = N'procedures/x.sql';

DECLARE @after int = (SELECT COUNT(*) FROM rowpost.journal AS j);
EXEC tSQLt.AssertEquals @Expected = @before, @Actual = @after;
GO
CREATE OR ALTER PROCEDURE deploy_forget_script.[test forget_script has nothing against an unknown script]
AS
DECLARE @before int = (SELECT COUNT(*) FROM rowpost.journal AS j);

EXEC rowpost.forget_script @script_name = N'%';

DECLARE @after int = (SELECT COUNT(*) FROM rowpost.journal AS j);
EXEC tSQLt.AssertEquals @Expected = @before, @Actual = @after;
GO
CREATE OR ALTER PROCEDURE deploy_forget_script.[test forget_script is undone by the callers rollback]
AS
DECLARE @before int = (SELECT COUNT(*) FROM rowpost.journal AS j);
SAVE TRANSACTION before_it;

EXEC rowpost.forget_script @script_name = N'grants.sql';
ROLLBACK TRANSACTION before_it;

DECLARE @after int = (SELECT COUNT(*) FROM rowpost.journal AS j);
EXEC tSQLt.AssertEquals @Expected = @before, @Actual = @after;
GO
CREATE OR ALTER PROCEDURE deploy_forget_script.[test forget_script leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.forget_script @script_name = N'grants.sql';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
