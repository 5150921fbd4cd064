SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'registry_send_message';
GO
CREATE OR ALTER PROCEDURE registry_send_message.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE registry_send_message.[test send_message reaches a queue by its name]
AS
DECLARE @id uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000001';

EXEC rowpost.send_message @queue_name = N'Sample', @headers = N'{"a":"漢"}', @body = 0x01, @id = @id, @time_to_be_received_ms = 60000;

DECLARE @as_given int = (
    SELECT COUNT(*)
    FROM dbo.Sample AS s
    WHERE s.Id = @id AND s.Headers = N'{"a":"漢"}' AND s.Body = 0x01 AND s.Expires > GETUTCDATE()
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @as_given;
GO
CREATE OR ALTER PROCEDURE registry_send_message.[test send_message refuses a queue that is not registered]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.send_message @queue_name = N'Nowhere', @headers = N'';
GO
CREATE OR ALTER PROCEDURE registry_send_message.[test send_message refuses a name that looks like SQL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.send_message @queue_name = N'Sample]; DROP TABLE dbo.Sample; --', @headers = N'';
GO
CREATE OR ALTER PROCEDURE registry_send_message.[test send_message takes text that looks like SQL as text]
AS
EXEC rowpost.send_message @queue_name = N'Sample', @headers = N'''; DELETE FROM dbo.Sample; --';

DECLARE @stored nvarchar(max) = (SELECT s.Headers FROM dbo.Sample AS s);
EXEC tSQLt.AssertEqualsString @Expected = N'''; DELETE FROM dbo.Sample; --', @Actual = @stored;
GO
CREATE OR ALTER PROCEDURE registry_send_message.[test send_message refuses a negative time]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51004;

EXEC rowpost.send_message @queue_name = N'Sample', @headers = N'', @time_to_be_received_ms = -1;
GO
CREATE OR ALTER PROCEDURE registry_send_message.[test send_message is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.send_message @queue_name = N'Sample', @headers = N'';
ROLLBACK TRANSACTION before_it;

EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.Sample';
GO
CREATE OR ALTER PROCEDURE registry_send_message.[test send_message leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.send_message @queue_name = N'Sample', @headers = N'';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
