SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'registry_register_queue';
GO
CREATE OR ALTER PROCEDURE registry_register_queue.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE registry_register_queue.[test register_queue enters a queue as given]
AS
EXEC rowpost.register_queue
    @queue_key = N'Orders~0', @queue_name = N'Orders@[eu]', @catalog_name = N'Shop', @schema_name = N'eu', @table_name = N'Orders',
    @kind = 'external', @body_string = 1, @clustered = 0, @delayed = 0;

DECLARE @as_given int = (
    SELECT COUNT(*)
    FROM rowpost.queue AS q
    WHERE q.queue_key = N'Orders~0'
      AND q.queue_name = N'Orders@[eu]'
      AND q.catalog_name = N'Shop'
      AND q.schema_name = N'eu'
      AND q.table_name = N'Orders'
      AND q.kind = 'external'
      AND q.body_string = 1
      AND q.[clustered] = 0
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @as_given;
GO
CREATE OR ALTER PROCEDURE registry_register_queue.[test register_queue renews the options of an entry]
AS
EXEC rowpost.register_queue
    @queue_key = N'Sample', @queue_name = N'Sample', @schema_name = N'dbo', @table_name = N'Sample',
    @kind = 'adopted', @body_string = 1, @clustered = 0, @delayed = 0;

DECLARE @renewed int = (
    SELECT COUNT(*)
    FROM rowpost.queue AS q
    WHERE q.queue_key = N'Sample' AND q.kind = 'adopted' AND q.body_string = 1 AND q.[clustered] = 0
);
DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.queue AS q WHERE q.queue_name = N'Sample');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @renewed;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE registry_register_queue.[test register_queue refuses another queue of the same table]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51005;

EXEC rowpost.register_queue
    @queue_key = N'Other', @queue_name = N'Other', @schema_name = N'dbo', @table_name = N'Sample',
    @kind = 'own', @body_string = 0, @clustered = 1, @delayed = 0;
GO
CREATE OR ALTER PROCEDURE registry_register_queue.[test register_queue refuses another queue of the same key]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51005;

EXEC rowpost.register_queue
    @queue_key = N'Sample', @queue_name = N'Sample@[eu]', @schema_name = N'eu', @table_name = N'Sample',
    @kind = 'own', @body_string = 0, @clustered = 1, @delayed = 0;
GO
CREATE OR ALTER PROCEDURE registry_register_queue.[test register_queue keeps tables of two databases apart]
AS
EXEC rowpost.register_queue
    @queue_key = N'There', @queue_name = N'Sample@[dbo]@[There]', @catalog_name = N'There', @schema_name = N'dbo',
    @table_name = N'Sample', @kind = 'external', @body_string = 0, @clustered = 1, @delayed = 0;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.queue AS q WHERE q.table_name = N'Sample');
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE registry_register_queue.[test register_queue refuses an empty table name]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51002;

EXEC rowpost.register_queue
    @queue_key = N'New', @queue_name = N'New', @schema_name = N'dbo', @table_name = N'',
    @kind = 'own', @body_string = 0, @clustered = 1, @delayed = 0;
GO
CREATE OR ALTER PROCEDURE registry_register_queue.[test register_queue refuses a NULL key]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51002;

EXEC rowpost.register_queue
    @queue_key = NULL, @queue_name = N'New', @schema_name = N'dbo', @table_name = N'New',
    @kind = 'own', @body_string = 0, @clustered = 1, @delayed = 0;
GO
CREATE OR ALTER PROCEDURE registry_register_queue.[test register_queue refuses a kind that is none]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 547;

EXEC rowpost.register_queue
    @queue_key = N'New', @queue_name = N'New', @schema_name = N'dbo', @table_name = N'New',
    @kind = 'foreign', @body_string = 0, @clustered = 1, @delayed = 0;
GO
CREATE OR ALTER PROCEDURE registry_register_queue.[test register_queue takes names that look like SQL as names]
AS
DECLARE @name nvarchar(128) = N'x''); DROP TABLE dbo.Sample; --]';

EXEC rowpost.register_queue
    @queue_key = @name, @queue_name = @name, @schema_name = N'dbo', @table_name = @name,
    @kind = 'own', @body_string = 0, @clustered = 1, @delayed = 0;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.queue AS q WHERE q.table_name = @name);
DECLARE @sample int = OBJECT_ID(N'dbo.Sample', N'U');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
IF @sample IS NULL
    EXEC tSQLt.Fail @Message0 = N'dbo.Sample is gone';
GO
CREATE OR ALTER PROCEDURE registry_register_queue.[test register_queue is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.register_queue
    @queue_key = N'New', @queue_name = N'New', @schema_name = N'dbo', @table_name = N'New',
    @kind = 'own', @body_string = 0, @clustered = 1, @delayed = 0;
ROLLBACK TRANSACTION before_it;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.queue AS q WHERE q.queue_key = N'New');
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE registry_register_queue.[test register_queue refuses a table of 129 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51002;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 129);

EXEC rowpost.register_queue
    @queue_key = N'New', @queue_name = N'New', @schema_name = N'dbo', @table_name = @long,
    @kind = 'own', @body_string = 0, @clustered = 1, @delayed = 0;
GO
CREATE OR ALTER PROCEDURE registry_register_queue.[test register_queue leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.register_queue
    @queue_key = N'New', @queue_name = N'New', @schema_name = N'dbo', @table_name = N'New',
    @kind = 'own', @body_string = 0, @clustered = 1, @delayed = 0;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
