SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'deploy_forget_feature';
GO
CREATE OR ALTER PROCEDURE deploy_forget_feature.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE deploy_forget_feature.[test forget_feature deletes that record alone]
AS
EXEC rowpost.record_feature @environment = N'test', @feature = N'spark';
EXEC rowpost.record_feature @environment = N'test', @feature = N'outbox';
EXEC rowpost.record_feature @environment = N'other', @feature = N'spark';

EXEC rowpost.forget_feature @environment = N'test', @feature = N'spark';

DECLARE @recorded int = (SELECT COUNT(*) FROM rowpost.declared_feature AS d WHERE d.environment IN (N'test', N'other'));
DECLARE @forgotten int = (SELECT COUNT(*) FROM rowpost.declared_feature AS d WHERE d.environment = N'test' AND d.feature = N'spark');
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @recorded;
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @forgotten;
GO
CREATE OR ALTER PROCEDURE deploy_forget_feature.[test forget_feature is undone by the callers rollback]
AS
EXEC rowpost.record_feature @environment = N'test', @feature = N'spark';
SAVE TRANSACTION before_it;

EXEC rowpost.forget_feature @environment = N'test', @feature = N'spark';
ROLLBACK TRANSACTION before_it;

DECLARE @recorded int = (SELECT COUNT(*) FROM rowpost.declared_feature AS d WHERE d.environment = N'test');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @recorded;
GO
CREATE OR ALTER PROCEDURE deploy_forget_feature.[test forget_feature leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.forget_feature @environment = N'test', @feature = N'spark';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
