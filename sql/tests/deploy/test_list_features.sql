SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'deploy_list_features';
GO
CREATE OR ALTER PROCEDURE deploy_list_features.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE deploy_list_features.[test list_features lists what every environment has declared]
AS
CREATE TABLE #listed (environment nvarchar(200), feature nvarchar(200));
EXEC rowpost.record_feature @environment = N'test', @feature = N'spark';
EXEC rowpost.record_feature @environment = N'other', @feature = N'delayed:Sales';

INSERT INTO #listed (environment, feature)
EXEC rowpost.list_features;

DECLARE @recorded int = (SELECT COUNT(*) FROM rowpost.declared_feature AS d);
DECLARE @listed int = (SELECT COUNT(*) FROM #listed AS l);
DECLARE @ours int = (SELECT COUNT(*) FROM #listed AS l WHERE l.environment IN (N'test', N'other'));
EXEC tSQLt.AssertEquals @Expected = @recorded, @Actual = @listed;
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @ours;
GO
CREATE OR ALTER PROCEDURE deploy_list_features.[test list_features leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.list_features;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
