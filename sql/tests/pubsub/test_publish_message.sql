SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'pubsub_publish_message';
GO
CREATE OR ALTER PROCEDURE pubsub_publish_message.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE pubsub_publish_message.[test publish_message sends one copy to a queue that is subscribed twice]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Sample@[dbo]';
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.B', @queue_address = N'Sample@[dbo]';
EXEC rowpost.subscribe @endpoint = N'Other', @topic = N'Shop.B', @queue_address = N'Sample';

EXEC rowpost.publish_message @topics = N'["Shop.A","Shop.B"]', @headers = N'{"a":"漢🚀"}', @body = 0x00FF;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.Sample AS s);
DECLARE @same int = (SELECT COUNT(*) FROM dbo.Sample AS s WHERE s.Headers = N'{"a":"漢🚀"}' AND s.Body = 0x00FF);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @same;
GO
CREATE OR ALTER PROCEDURE pubsub_publish_message.[test publish_message gives each copy its time to be received]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Sample@[dbo]';

EXEC rowpost.publish_message @topics = N'["Shop.A"]', @headers = N'', @time_to_be_received_ms = 60000;
EXEC rowpost.publish_message @topics = N'["Shop.A"]', @headers = N'';

DECLARE @expiring int = (
    SELECT COUNT(*)
    FROM dbo.Sample AS s
    WHERE s.Expires > DATEADD(SECOND, 30, SYSUTCDATETIME()) AND s.Expires < DATEADD(SECOND, 90, SYSUTCDATETIME())
);
DECLARE @lasting int = (SELECT COUNT(*) FROM dbo.Sample AS s WHERE s.Expires IS NULL);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @expiring;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @lasting;
GO
CREATE OR ALTER PROCEDURE pubsub_publish_message.[test publish_message sends nothing to those of other topics]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Sample@[dbo]';

EXEC rowpost.publish_message @topics = N'["Shop.B"]', @headers = N'';

EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.Sample';
GO
CREATE OR ALTER PROCEDURE pubsub_publish_message.[test publish_message returns the queues and whether they are here]
AS
-- Babelfish: INSERT EXEC takes no procedure that calls another one
CREATE TABLE #sent (queue_address nvarchar(200), stored bit);
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Sample@[dbo]';
EXEC rowpost.subscribe @endpoint = N'Sales', @topic = N'Shop.A', @queue_address = N'Elsewhere@[dbo]@[other]';

INSERT INTO #sent (queue_address, stored)
EXEC rowpost.publish_message @topics = N'["Shop.A"]', @headers = N'';

DECLARE @here int = (SELECT COUNT(*) FROM #sent AS s WHERE s.queue_address = N'Sample@[dbo]' AND s.stored = 1);
DECLARE @elsewhere int = (SELECT COUNT(*) FROM #sent AS s WHERE s.queue_address = N'Elsewhere@[dbo]@[other]' AND s.stored = 0);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @here;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @elsewhere;
GO
CREATE OR ALTER PROCEDURE pubsub_publish_message.[test publish_message stores nothing for a queue whose table is gone]
AS
-- Babelfish: INSERT EXEC takes no procedure that calls another one
CREATE TABLE #sent (queue_address nvarchar(200), stored bit);
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Sample@[dbo]';
EXEC rowpost.subscribe @endpoint = N'Sales', @topic = N'Shop.A', @queue_address = N'Gone';
EXEC rowpost.register_queue
    @queue_key = N'Gone', @queue_name = N'Gone', @schema_name = N'dbo', @table_name = N'Gone',
    @kind = 'external', @body_string = 0, @clustered = 0, @delayed = 0;

INSERT INTO #sent (queue_address, stored)
EXEC rowpost.publish_message @topics = N'["Shop.A"]', @headers = N'';

DECLARE @here int = (SELECT COUNT(*) FROM #sent AS s WHERE s.queue_address = N'Sample@[dbo]' AND s.stored = 1);
DECLARE @gone int = (SELECT COUNT(*) FROM #sent AS s WHERE s.queue_address = N'Gone' AND s.stored = 0);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @here;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @gone;
GO
CREATE OR ALTER PROCEDURE pubsub_publish_message.[test publish_message takes text that looks like SQL as text]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'''; DELETE FROM dbo.Sample; --', @queue_address = N'Sample@[dbo]';

EXEC rowpost.publish_message @topics = N'["''; DELETE FROM dbo.Sample; --"]', @headers = N'''); DELETE FROM dbo.Sample; --';

DECLARE @stored nvarchar(max) = (SELECT s.Headers FROM dbo.Sample AS s);
EXEC tSQLt.AssertEqualsString @Expected = N'''); DELETE FROM dbo.Sample; --', @Actual = @stored;
GO
CREATE OR ALTER PROCEDURE pubsub_publish_message.[test publish_message is undone by the callers rollback]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Sample@[dbo]';
SAVE TRANSACTION before_it;

EXEC rowpost.publish_message @topics = N'["Shop.A"]', @headers = N'';
ROLLBACK TRANSACTION before_it;

EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.Sample';
GO
CREATE OR ALTER PROCEDURE pubsub_publish_message.[test publish_message sends one copy to a queue that two tables have]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Sample@[dbo]';
INSERT INTO dbo.SampleRouting (QueueAddress, Endpoint, Topic)
VALUES (N'Sample', N'Other', N'Shop.A');

EXEC rowpost.publish_message @topics = N'["Shop.A"]', @headers = N'';

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE pubsub_publish_message.[test publish_message sends a copy to a subscriber in another table]
AS
EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Sample@[dbo]', @table_key = N'SampleRouting';

EXEC rowpost.publish_message @topics = N'["Shop.A"]', @headers = N'';

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE pubsub_publish_message.[test publish_message leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.subscribe @endpoint = N'Billing', @topic = N'Shop.A', @queue_address = N'Sample@[dbo]';
EXEC rowpost.publish_message @topics = N'["Shop.A"]', @headers = N'';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
