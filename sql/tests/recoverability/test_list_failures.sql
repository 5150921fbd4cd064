SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'recoverability_list_failures';
GO
CREATE OR ALTER PROCEDURE recoverability_list_failures.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE recoverability_list_failures.[test list_failures lists the attempts at one message in the queues on record]
AS
CREATE TABLE #failures (queue_name nvarchar(400), attempts int, failed_at datetime2(3));
EXEC rowpost.record_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC rowpost.record_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC rowpost.record_failure @queue_key = N'Other', @id = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC rowpost.record_failure @queue_key = N'Other', @id = 'aaaaaaaa-0000-0000-0000-000000000002';

INSERT INTO #failures (queue_name, attempts, failed_at)
EXEC rowpost.list_failures @id = 'aaaaaaaa-0000-0000-0000-000000000001';

DECLARE @found nvarchar(max) = (
    SELECT CONCAT(f.queue_name, N' ', f.attempts) FROM #failures AS f
);
EXEC tSQLt.AssertEqualsString @Expected = N'Sample 2', @Actual = @found;
GO
CREATE OR ALTER PROCEDURE recoverability_list_failures.[test list_failures lists nothing for a message that did not fail]
AS
CREATE TABLE #failures (queue_name nvarchar(400), attempts int, failed_at datetime2(3));

INSERT INTO #failures (queue_name, attempts, failed_at)
EXEC rowpost.list_failures @id = 'aaaaaaaa-0000-0000-0000-000000000001';

EXEC tSQLt.AssertEmptyTable @TableName = N'#failures';
GO
CREATE OR ALTER PROCEDURE recoverability_list_failures.[test list_failures leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.list_failures @id = 'aaaaaaaa-0000-0000-0000-000000000001';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
