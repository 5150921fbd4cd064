SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'registry_send_unregistered';
GO
CREATE OR ALTER PROCEDURE registry_send_unregistered.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE registry_send_unregistered.[test send_unregistered stores a row as given]
AS
DECLARE @id uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000001';

EXEC rowpost.send_unregistered
    @schema_name = N'dbo', @table_name = N'Sample', @headers = N'{"a":"漢"}', @body = 0x01, @id = @id, @time_to_be_received_ms = 5184000000;

DECLARE @as_given int = (
    SELECT COUNT(*)
    FROM dbo.Sample AS s
    WHERE s.Id = @id
      AND s.Headers = N'{"a":"漢"}'
      AND s.Body = 0x01
      AND s.Recoverable = 1
      AND DATEDIFF(DAY, GETUTCDATE(), s.Expires) = 60
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @as_given;
GO
CREATE OR ALTER PROCEDURE registry_send_unregistered.[test send_unregistered does without a column Recoverable]
AS
CREATE TABLE dbo.lean
(
    Id uniqueidentifier NOT NULL,
    Expires datetime NULL,
    Headers nvarchar(max) NOT NULL,
    Body varbinary(max) NULL,
    RowVersion bigint IDENTITY (1, 1) NOT NULL
);

EXEC rowpost.send_unregistered @schema_name = N'dbo', @table_name = N'lean', @headers = N'';

DECLARE @rows int;
EXEC sys.sp_executesql
    N'SELECT @rows = COUNT(*) FROM dbo.lean AS l WHERE l.Expires IS NULL;', N'@rows int OUTPUT', @rows = @rows OUTPUT;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE registry_send_unregistered.[test send_unregistered serves a table with a hostile name]
AS
-- Babelfish: its parser takes no closing bracket in a name
EXEC (
    N'CREATE TABLE dbo.[x]]; DROP TABLE dbo.Sample; --] (Id uniqueidentifier NOT NULL, Expires datetime NULL,'
    + N' Headers nvarchar(max) NOT NULL, Body varbinary(max) NULL, RowVersion bigint IDENTITY (1, 1) NOT NULL);'
);

EXEC rowpost.send_unregistered @schema_name = N'dbo', @table_name = N'x]; DROP TABLE dbo.Sample; --', @headers = N'';

DECLARE @rows int;
EXEC sys.sp_executesql
    N'SELECT @rows = COUNT(*) FROM dbo.[x]]; DROP TABLE dbo.Sample; --] AS h;', N'@rows int OUTPUT', @rows = @rows OUTPUT;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.Sample';
GO
CREATE OR ALTER PROCEDURE registry_send_unregistered.[test send_unregistered refuses a table that is not there]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.send_unregistered @schema_name = N'dbo', @table_name = N'Nowhere', @headers = N'';
GO
CREATE OR ALTER PROCEDURE registry_send_unregistered.[test send_unregistered refuses a name that looks like SQL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.send_unregistered @schema_name = N'dbo', @table_name = N'Sample; DROP TABLE dbo.Sample; --', @headers = N'';
GO
CREATE OR ALTER PROCEDURE registry_send_unregistered.[test send_unregistered refuses NULL for a name]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.send_unregistered @schema_name = N'dbo', @table_name = NULL, @headers = N'';
GO
CREATE OR ALTER PROCEDURE registry_send_unregistered.[test send_unregistered refuses a table that is no queue]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51009;

EXEC rowpost.send_unregistered @schema_name = N'rowpost', @table_name = N'journal', @headers = N'';
GO
CREATE OR ALTER PROCEDURE registry_send_unregistered.[test send_unregistered refuses a time of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51004;

EXEC rowpost.send_unregistered @schema_name = N'dbo', @table_name = N'Sample', @headers = N'', @time_to_be_received_ms = 0;
GO
CREATE OR ALTER PROCEDURE registry_send_unregistered.[test send_unregistered is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.send_unregistered @schema_name = N'dbo', @table_name = N'Sample', @headers = N'';
ROLLBACK TRANSACTION before_it;

EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.Sample';
GO
CREATE OR ALTER PROCEDURE registry_send_unregistered.[test send_unregistered refuses a table of 129 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 129);

EXEC rowpost.send_unregistered @schema_name = N'dbo', @table_name = @long, @headers = N'';
GO
CREATE OR ALTER PROCEDURE registry_send_unregistered.[test send_unregistered leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.send_unregistered @schema_name = N'dbo', @table_name = N'Sample', @headers = N'';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
