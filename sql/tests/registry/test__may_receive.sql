SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'registry__may_receive';
GO
CREATE OR ALTER PROCEDURE registry__may_receive.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE registry__may_receive.[test _may_receive is true of every queue for the owner of the schema]
AS
DECLARE @known int = rowpost."_may_receive"(N'Sample');
DECLARE @unknown int = rowpost."_may_receive"(N'Nowhere');
DECLARE @none int = rowpost."_may_receive"(NULL);

EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @known;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @unknown;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @none;
GO
CREATE OR ALTER PROCEDURE registry__may_receive.[test _may_receive takes a name that looks like SQL as a name]
AS
DECLARE @answer int = rowpost."_may_receive"(N']; DROP TABLE rowpost.queue; --');

EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @answer;
GO
