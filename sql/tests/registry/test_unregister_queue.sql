SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'registry_unregister_queue';
GO
CREATE OR ALTER PROCEDURE registry_unregister_queue.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE registry_unregister_queue.[test unregister_queue removes the entry and its failure counts]
AS
EXEC rowpost.record_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC rowpost.record_failure @queue_key = N'Other', @id = 'aaaaaaaa-0000-0000-0000-000000000001';

EXEC rowpost.unregister_queue @queue_name = N'Sample';

DECLARE @entries int = (SELECT COUNT(*) FROM rowpost.queue AS q WHERE q.queue_name = N'Sample');
DECLARE @counts int = (SELECT COUNT(*) FROM rowpost.failure AS f WHERE f.queue_key = N'Sample');
DECLARE @others int = (SELECT COUNT(*) FROM rowpost.failure AS f WHERE f.queue_key = N'Other');
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @entries;
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @counts;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @others;
GO
CREATE OR ALTER PROCEDURE registry_unregister_queue.[test unregister_queue leaves the table and its messages]
AS
EXEC rowpost.[send_message:Sample] @headers = N'';

EXEC rowpost.unregister_queue @queue_name = N'Sample';

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE registry_unregister_queue.[test unregister_queue refuses a queue that is not registered]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.unregister_queue @queue_name = N'Nowhere';
GO
CREATE OR ALTER PROCEDURE registry_unregister_queue.[test unregister_queue is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.unregister_queue @queue_name = N'Sample';
ROLLBACK TRANSACTION before_it;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.queue AS q WHERE q.queue_name = N'Sample');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE registry_unregister_queue.[test unregister_queue leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.unregister_queue @queue_name = N'Sample';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
