SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'registry_receive_messages';
GO
CREATE OR ALTER PROCEDURE registry_receive_messages.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE registry_receive_messages.[test receive_messages takes from a queue by its name]
AS
EXEC rowpost.[send_messages:Sample] @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"}]';

EXEC rowpost.receive_messages @queue_name = N'Sample', @count = 1;

DECLARE @left nvarchar(max) = (SELECT s.Headers FROM dbo.Sample AS s);
EXEC tSQLt.AssertEqualsString @Expected = N'b', @Actual = @left;
GO
CREATE OR ALTER PROCEDURE registry_receive_messages.[test receive_messages returns what the queues procedure returns]
AS
-- Babelfish: INSERT EXEC takes no procedure that calls another one
CREATE TABLE #received (id uniqueidentifier, row_version bigint, expired bit, headers nvarchar(max), body varbinary(max));
DECLARE @id uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC rowpost.[send_message:Sample] @headers = N'{"a":"漢"}', @body = 0x01, @id = @id;

INSERT INTO #received (id, row_version, expired, headers, body)
EXEC rowpost.receive_messages @queue_name = N'Sample', @count = 1;

DECLARE @same int = (
    SELECT COUNT(*) FROM #received AS r WHERE r.id = @id AND r.expired = 0 AND r.headers = N'{"a":"漢"}' AND r.body = 0x01
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @same;
GO
CREATE OR ALTER PROCEDURE registry_receive_messages.[test receive_messages passes after_row_version on]
AS
EXEC rowpost.[send_message:Sample] @headers = N'below';
DECLARE @after_row_version bigint = (SELECT s.RowVersion FROM dbo.Sample AS s);
EXEC rowpost.[send_message:Sample] @headers = N'above';

EXEC rowpost.receive_messages @queue_name = N'Sample', @count = 10, @after_row_version = @after_row_version;

DECLARE @left nvarchar(max) = (SELECT s.Headers FROM dbo.Sample AS s);
EXEC tSQLt.AssertEqualsString @Expected = N'below', @Actual = @left;
GO
CREATE OR ALTER PROCEDURE registry_receive_messages.[test receive_messages refuses a queue that is not registered]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.receive_messages @queue_name = N'Nowhere', @count = 1;
GO
CREATE OR ALTER PROCEDURE registry_receive_messages.[test receive_messages refuses a name that looks like SQL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.receive_messages @queue_name = N'Sample]; DROP TABLE dbo.Sample; --', @count = 1;
GO
CREATE OR ALTER PROCEDURE registry_receive_messages.[test receive_messages refuses a count of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.receive_messages @queue_name = N'Sample', @count = 0;
GO
CREATE OR ALTER PROCEDURE registry_receive_messages.[test receive_messages leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.receive_messages @queue_name = N'Sample', @count = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
