SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'deploy_record_feature';
GO
CREATE OR ALTER PROCEDURE deploy_record_feature.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE deploy_record_feature.[test record_feature records a feature once]
AS
EXEC rowpost.record_feature @environment = N'test', @feature = N'spark';
EXEC rowpost.record_feature @environment = N'test', @feature = N'spark';
EXEC rowpost.record_feature @environment = N'test', @feature = N'delayed:it''s [odd]';

DECLARE @recorded int = (SELECT COUNT(*) FROM rowpost.declared_feature AS d WHERE d.environment = N'test');
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @recorded;
GO
CREATE OR ALTER PROCEDURE deploy_record_feature.[test record_feature is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.record_feature @environment = N'test', @feature = N'spark';
ROLLBACK TRANSACTION before_it;

DECLARE @recorded int = (SELECT COUNT(*) FROM rowpost.declared_feature AS d WHERE d.environment = N'test');
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @recorded;
GO
CREATE OR ALTER PROCEDURE deploy_record_feature.[test record_feature refuses an environment of 201 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51034;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 201);

EXEC rowpost.record_feature @environment = @long, @feature = N'spark';
GO
CREATE OR ALTER PROCEDURE deploy_record_feature.[test record_feature leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.record_feature @environment = N'test', @feature = N'spark';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
