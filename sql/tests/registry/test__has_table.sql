SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'registry__has_table';
GO
CREATE OR ALTER PROCEDURE registry__has_table.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE registry__has_table.[test _has_table is true of a queue with its table and of no other]
AS
EXEC rowpost.register_queue
    @queue_key = N'Gone', @queue_name = N'Gone', @schema_name = N'dbo', @table_name = N'Gone',
    @kind = 'external', @body_string = 0, @clustered = 0, @delayed = 0;

DECLARE @there int = rowpost."_has_table"(N'Sample');
DECLARE @gone int = rowpost."_has_table"(N'Gone');
DECLARE @unknown int = rowpost."_has_table"(N'Nowhere');
DECLARE @none int = rowpost."_has_table"(NULL);

EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @there;
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @gone;
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @unknown;
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @none;
GO
CREATE OR ALTER PROCEDURE registry__has_table.[test _has_table takes a name that looks like SQL as a name]
AS
EXEC rowpost.register_queue
    @queue_key = N'Odd', @queue_name = N'Odd', @schema_name = N'dbo', @table_name = N'x''; DROP TABLE rowpost.queue; --',
    @kind = 'external', @body_string = 0, @clustered = 0, @delayed = 0;

DECLARE @answer int = rowpost."_has_table"(N'Odd');

EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @answer;
GO
