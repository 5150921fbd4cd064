SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'registry__is_operator';
GO
CREATE OR ALTER PROCEDURE registry__is_operator.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE registry__is_operator.[test _is_operator is true of the owner of the schema]
AS
DECLARE @answer int = rowpost."_is_operator"();

EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @answer;
GO
