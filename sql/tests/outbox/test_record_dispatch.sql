SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'outbox_record_dispatch';
GO
CREATE OR ALTER PROCEDURE outbox_record_dispatch.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE outbox_record_dispatch.[test record_dispatch writes the dispatch down]
AS
DECLARE @before datetime2(3) = DATEADD(SECOND, -1, SYSUTCDATETIME());

EXEC rowpost.record_dispatch @endpoint = N'Sales', @message_id = N'm-1';

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.dispatch AS d
    WHERE d.endpoint = N'Sales' AND d.message_id = N'm-1'
      AND d.dispatched_at BETWEEN @before AND DATEADD(SECOND, 1, SYSUTCDATETIME())
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE outbox_record_dispatch.[test record_dispatch refuses what has left already]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51021;

EXEC rowpost.record_dispatch @endpoint = N'Sales', @message_id = N'm-1';
EXEC rowpost.record_dispatch @endpoint = N'Sales', @message_id = N'm-1';
GO
CREATE OR ALTER PROCEDURE outbox_record_dispatch.[test record_dispatch takes the same message of another endpoint]
AS
EXEC rowpost.record_dispatch @endpoint = N'Sales', @message_id = N'm-1';

EXEC rowpost.record_dispatch @endpoint = N'Billing', @message_id = N'm-1';

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.dispatch AS d);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE outbox_record_dispatch.[test record_dispatch refuses a message id of NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 515;

EXEC rowpost.record_dispatch @endpoint = N'Sales', @message_id = NULL;
GO
CREATE OR ALTER PROCEDURE outbox_record_dispatch.[test record_dispatch takes a message id that looks like SQL as one]
AS
EXEC rowpost.record_dispatch @endpoint = N'Sales', @message_id = N'''; DELETE FROM rowpost.outbox; --';

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.dispatch AS d WHERE d.message_id = N'''; DELETE FROM rowpost.outbox; --');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE outbox_record_dispatch.[test record_dispatch is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.record_dispatch @endpoint = N'Sales', @message_id = N'm-1';
ROLLBACK TRANSACTION before_it;

EXEC tSQLt.AssertEmptyTable @TableName = N'rowpost.dispatch';
GO
CREATE OR ALTER PROCEDURE outbox_record_dispatch.[test record_dispatch refuses an endpoint of 201 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51023;
DECLARE @endpoint nvarchar(400) = REPLICATE(N'x', 201);

EXEC rowpost.record_dispatch @endpoint = @endpoint, @message_id = N'm-1';
GO
CREATE OR ALTER PROCEDURE outbox_record_dispatch.[test record_dispatch refuses an id of 201 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51022;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 201);

EXEC rowpost.record_dispatch @endpoint = N'Sales', @message_id = @long;
GO
CREATE OR ALTER PROCEDURE outbox_record_dispatch.[test record_dispatch leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.record_dispatch @endpoint = N'Sales', @message_id = N'm-1';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
