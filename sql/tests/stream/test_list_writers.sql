SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_list_writers';
GO
CREATE OR ALTER PROCEDURE stream_list_writers.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_list_writers.[test list_writers does not name the callers own transaction]
AS
CREATE TABLE #writers (writer nvarchar(400), process int, since datetime2(3), program nvarchar(400));
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"}]';

INSERT INTO #writers (writer, process, since, program)
EXEC rowpost.[list_writers:Sample];

DECLARE @named int = (SELECT COUNT(*) FROM #writers AS t WHERE t.process = @@SPID);
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @named;
GO
CREATE OR ALTER PROCEDURE stream_list_writers.[test list_writers leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[list_writers:Sample];

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
