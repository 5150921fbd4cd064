SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'pubsub_send_to_subscriber';
GO
CREATE OR ALTER PROCEDURE pubsub_send_to_subscriber.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE pubsub_send_to_subscriber.[test send_to_subscriber stores a copy as given]
AS
EXEC rowpost.send_to_subscriber
    @schema_name = N'dbo', @table_name = N'Sample', @headers = N'{"a":"漢"}', @body = 0x01, @time_to_be_received_ms = 5184000000,
    @otherwise_queue = N'Nowhere', @otherwise_headers = N'second';

DECLARE @as_given int = (
    SELECT COUNT(*)
    FROM dbo.Sample AS s
    WHERE s.Headers = N'{"a":"漢"}'
      AND s.Body = 0x01
      AND DATEDIFF(DAY, GETUTCDATE(), s.Expires) = 60
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @as_given;
GO
CREATE OR ALTER PROCEDURE pubsub_send_to_subscriber.[test send_to_subscriber stores it in the other queue if the table is gone]
AS
EXEC rowpost.send_to_subscriber
    @schema_name = N'dbo', @table_name = N'Nowhere', @headers = N'first', @body = 0x01, @time_to_be_received_ms = 60000,
    @otherwise_queue = N'Sample', @otherwise_headers = N'second';

DECLARE @as_given int = (SELECT COUNT(*) FROM dbo.Sample AS s WHERE s.Headers = N'second' AND s.Body = 0x01 AND s.Expires IS NULL);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @as_given;
GO
CREATE OR ALTER PROCEDURE pubsub_send_to_subscriber.[test send_to_subscriber returns whether the table was there]
AS
-- Babelfish: INSERT EXEC takes no procedure that calls another one
CREATE TABLE #sent (stored bit);
INSERT INTO #sent (stored)
EXEC rowpost.send_to_subscriber
    @schema_name = N'dbo', @table_name = N'Sample', @headers = N'', @otherwise_queue = N'Sample', @otherwise_headers = N'';
INSERT INTO #sent (stored)
EXEC rowpost.send_to_subscriber
    @schema_name = N'dbo', @table_name = N'Nowhere', @headers = N'', @otherwise_queue = N'Sample', @otherwise_headers = N'';

DECLARE @there int = (SELECT COUNT(*) FROM #sent AS s WHERE s.stored = 1);
DECLARE @gone int = (SELECT COUNT(*) FROM #sent AS s WHERE s.stored = 0);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @there;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @gone;
GO
CREATE OR ALTER PROCEDURE pubsub_send_to_subscriber.[test send_to_subscriber takes a name that looks like SQL as a name]
AS
EXEC rowpost.send_to_subscriber
    @schema_name = N'dbo', @table_name = N'Sample; DROP TABLE dbo.Sample; --', @headers = N'first',
    @otherwise_queue = N'Sample', @otherwise_headers = N'second';

DECLARE @as_given int = (SELECT COUNT(*) FROM dbo.Sample AS s WHERE s.Headers = N'second');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @as_given;
GO
CREATE OR ALTER PROCEDURE pubsub_send_to_subscriber.[test send_to_subscriber refuses a table that is gone if no other queue is named]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.send_to_subscriber @schema_name = N'dbo', @table_name = N'Nowhere', @headers = N'';
GO
CREATE OR ALTER PROCEDURE pubsub_send_to_subscriber.[test send_to_subscriber refuses another queue that is not there either]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.send_to_subscriber
    @schema_name = N'dbo', @table_name = N'Nowhere', @headers = N'', @otherwise_queue = N'Nowhere too', @otherwise_headers = N'';
GO
CREATE OR ALTER PROCEDURE pubsub_send_to_subscriber.[test send_to_subscriber refuses a table that is no queue]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51009;

EXEC rowpost.send_to_subscriber
    @schema_name = N'rowpost', @table_name = N'journal', @headers = N'', @otherwise_queue = N'Sample', @otherwise_headers = N'';
GO
CREATE OR ALTER PROCEDURE pubsub_send_to_subscriber.[test send_to_subscriber refuses a time of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51004;

EXEC rowpost.send_to_subscriber @schema_name = N'dbo', @table_name = N'Sample', @headers = N'', @time_to_be_received_ms = 0;
GO
CREATE OR ALTER PROCEDURE pubsub_send_to_subscriber.[test send_to_subscriber is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.send_to_subscriber
    @schema_name = N'dbo', @table_name = N'Nowhere', @headers = N'', @otherwise_queue = N'Sample', @otherwise_headers = N'second';
ROLLBACK TRANSACTION before_it;

EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.Sample';
GO
CREATE OR ALTER PROCEDURE pubsub_send_to_subscriber.[test send_to_subscriber leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.send_to_subscriber
    @schema_name = N'dbo', @table_name = N'Nowhere', @headers = N'', @otherwise_queue = N'Sample', @otherwise_headers = N'';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
