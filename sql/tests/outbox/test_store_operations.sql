SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'outbox_store_operations';
GO
CREATE OR ALTER PROCEDURE outbox_store_operations.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE outbox_store_operations.[test store_operations stores them as they are]
AS
EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-1', @operations = N'["ü"]';

DECLARE @operations nvarchar(max) = (SELECT o.operations FROM rowpost.outbox_operations AS o WHERE o.endpoint = N'Sales' AND o.message_id = N'm-1');
EXEC tSQLt.AssertEqualsString @Expected = N'["ü"]', @Actual = @operations;
GO
CREATE OR ALTER PROCEDURE outbox_store_operations.[test store_operations stores a megabyte whole]
AS
DECLARE @large nvarchar(max) = REPLICATE(CAST(N'x' AS nvarchar(max)), 500000);

EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-1', @operations = @large;

DECLARE @length int = (SELECT LEN(o.operations) FROM rowpost.outbox_operations AS o);
EXEC tSQLt.AssertEquals @Expected = 500000, @Actual = @length;
GO
CREATE OR ALTER PROCEDURE outbox_store_operations.[test store_operations refuses a message that has some already]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 2627;

EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-1', @operations = N'[]';
EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-1', @operations = N'[]';
GO
CREATE OR ALTER PROCEDURE outbox_store_operations.[test store_operations refuses operations of NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 515;

EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-1', @operations = NULL;
GO
CREATE OR ALTER PROCEDURE outbox_store_operations.[test store_operations takes a message id that looks like SQL as one]
AS
EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'''; DELETE FROM rowpost.outbox; --', @operations = N'[]';

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.outbox_operations AS o WHERE o.message_id = N'''; DELETE FROM rowpost.outbox; --');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE outbox_store_operations.[test store_operations is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-1', @operations = N'[]';
ROLLBACK TRANSACTION before_it;

EXEC tSQLt.AssertEmptyTable @TableName = N'rowpost.outbox_operations';
GO
CREATE OR ALTER PROCEDURE outbox_store_operations.[test store_operations refuses an id of 201 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51022;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 201);

EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = @long, @operations = N'[]';
GO
CREATE OR ALTER PROCEDURE outbox_store_operations.[test store_operations leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-1', @operations = N'[]';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
