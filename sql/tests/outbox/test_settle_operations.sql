SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'outbox_settle_operations';
GO
CREATE OR ALTER PROCEDURE outbox_settle_operations.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE outbox_settle_operations.[test settle_operations drops what has left and keeps the message]
AS
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';
EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-1', @operations = N'[]';

EXEC rowpost.settle_operations @endpoint = N'Sales', @message_id = N'm-1';

DECLARE @kept int = (SELECT COUNT(*) FROM rowpost.outbox AS o);
EXEC tSQLt.AssertEmptyTable @TableName = N'rowpost.outbox_operations';
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @kept;
GO
CREATE OR ALTER PROCEDURE outbox_settle_operations.[test settle_operations leaves other messages and endpoints alone]
AS
EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-2', @operations = N'[]';
EXEC rowpost.store_operations @endpoint = N'Billing', @message_id = N'm-1', @operations = N'[]';

EXEC rowpost.settle_operations @endpoint = N'Sales', @message_id = N'm-1';

DECLARE @left int = (SELECT COUNT(*) FROM rowpost.outbox_operations AS o);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @left;
GO
CREATE OR ALTER PROCEDURE outbox_settle_operations.[test settle_operations remembers for the whole time what left late]
AS
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';
EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-1', @operations = N'[]';
UPDATE o
SET o.handled_at = DATEADD(DAY, -30, SYSUTCDATETIME())
FROM rowpost.outbox AS o;

EXEC rowpost.settle_operations @endpoint = N'Sales', @message_id = N'm-1';

DECLARE @recent int = (SELECT COUNT(*) FROM rowpost.outbox AS o WHERE o.handled_at > DATEADD(MINUTE, -1, SYSUTCDATETIME()));
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @recent;
GO
CREATE OR ALTER PROCEDURE outbox_settle_operations.[test settle_operations does not touch the message where it left soon]
AS
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';
EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-1', @operations = N'[]';
UPDATE o
SET o.handled_at = DATEADD(MINUTE, -50, SYSUTCDATETIME())
FROM rowpost.outbox AS o;

EXEC rowpost.settle_operations @endpoint = N'Sales', @message_id = N'm-1';

DECLARE @recent int = (SELECT COUNT(*) FROM rowpost.outbox AS o WHERE o.handled_at > DATEADD(MINUTE, -40, SYSUTCDATETIME()));
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @recent;
GO
CREATE OR ALTER PROCEDURE outbox_settle_operations.[test settle_operations does nothing without operations]
AS
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';

EXEC rowpost.settle_operations @endpoint = N'Sales', @message_id = N'm-1';
EXEC rowpost.settle_operations @endpoint = NULL, @message_id = NULL;

DECLARE @kept int = (SELECT COUNT(*) FROM rowpost.outbox AS o);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @kept;
GO
CREATE OR ALTER PROCEDURE outbox_settle_operations.[test settle_operations is undone by the callers rollback]
AS
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';
EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-1', @operations = N'[]';
SAVE TRANSACTION before_it;

EXEC rowpost.settle_operations @endpoint = N'Sales', @message_id = N'm-1';
ROLLBACK TRANSACTION before_it;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.outbox_operations AS o);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE outbox_settle_operations.[test settle_operations leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.settle_operations @endpoint = N'Sales', @message_id = N'm-1';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
