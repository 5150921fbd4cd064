SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'outbox_record_handled';
GO
CREATE OR ALTER PROCEDURE outbox_record_handled.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE outbox_record_handled.[test record_handled writes the message down]
AS
DECLARE @before datetime2(3) = DATEADD(SECOND, -1, SYSUTCDATETIME());

EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.outbox AS o
    WHERE o.endpoint = N'Sales' AND o.message_id = N'm-1'
      AND o.handled_at BETWEEN @before AND DATEADD(SECOND, 1, SYSUTCDATETIME())
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE outbox_record_handled.[test record_handled refuses a message that was handled]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51020;

EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';
GO
CREATE OR ALTER PROCEDURE outbox_record_handled.[test record_handled takes the same message of another endpoint]
AS
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';

EXEC rowpost.record_handled @endpoint = N'Billing', @message_id = N'm-1';

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.outbox AS o);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE outbox_record_handled.[test record_handled keeps a message id of 200 characters whole]
AS
DECLARE @long nvarchar(400) = REPLICATE(N'x', 200);

EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = @long;

DECLARE @length int = (SELECT LEN(o.message_id) FROM rowpost.outbox AS o);
EXEC tSQLt.AssertEquals @Expected = 200, @Actual = @length;
GO
CREATE OR ALTER PROCEDURE outbox_record_handled.[test record_handled refuses a message id of 201 characters]
AS
DECLARE @long nvarchar(400) = REPLICATE(N'x', 201);
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51022;

EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = @long;
GO
CREATE OR ALTER PROCEDURE outbox_record_handled.[test record_handled refuses a message id of NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51022;

EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = NULL;
GO
CREATE OR ALTER PROCEDURE outbox_record_handled.[test record_handled refuses an endpoint of NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51023;

EXEC rowpost.record_handled @endpoint = NULL, @message_id = N'm-1';
GO
CREATE OR ALTER PROCEDURE outbox_record_handled.[test record_handled takes a message id that looks like SQL as one]
AS
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'''; DELETE FROM rowpost.outbox; --';

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.outbox AS o WHERE o.message_id = N'''; DELETE FROM rowpost.outbox; --');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE outbox_record_handled.[test record_handled is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';
ROLLBACK TRANSACTION before_it;

EXEC tSQLt.AssertEmptyTable @TableName = N'rowpost.outbox';
GO
CREATE OR ALTER PROCEDURE outbox_record_handled.[test record_handled refuses an endpoint of 201 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51023;
DECLARE @endpoint nvarchar(400) = REPLICATE(N'x', 201);

EXEC rowpost.record_handled @endpoint = @endpoint, @message_id = N'm-1';
GO
CREATE OR ALTER PROCEDURE outbox_record_handled.[test record_handled leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
