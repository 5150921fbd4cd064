SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'outbox_forget_dispatch';
GO
CREATE OR ALTER PROCEDURE outbox_forget_dispatch.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE outbox_forget_dispatch.[test forget_dispatch drops that one dispatch]
AS
EXEC rowpost.record_dispatch @endpoint = N'Sales', @message_id = N'm-1';
EXEC rowpost.record_dispatch @endpoint = N'Sales', @message_id = N'm-2';
EXEC rowpost.record_dispatch @endpoint = N'Billing', @message_id = N'm-1';

EXEC rowpost.forget_dispatch @endpoint = N'Sales', @message_id = N'm-1';

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.dispatch AS d);
DECLARE @gone int = (SELECT COUNT(*) FROM rowpost.dispatch AS d WHERE d.endpoint = N'Sales' AND d.message_id = N'm-1');
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @rows;
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @gone;
GO
CREATE OR ALTER PROCEDURE outbox_forget_dispatch.[test forget_dispatch does nothing without a dispatch]
AS
EXEC rowpost.record_dispatch @endpoint = N'Sales', @message_id = N'm-1';

EXEC rowpost.forget_dispatch @endpoint = N'Sales', @message_id = N'm-2';
EXEC rowpost.forget_dispatch @endpoint = NULL, @message_id = NULL;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.dispatch AS d);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE outbox_forget_dispatch.[test forget_dispatch takes a message id that looks like SQL as one]
AS
EXEC rowpost.record_dispatch @endpoint = N'Sales', @message_id = N'm-1';

EXEC rowpost.forget_dispatch @endpoint = N'Sales', @message_id = N''' OR 1 = 1; --';

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.dispatch AS d);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE outbox_forget_dispatch.[test forget_dispatch is undone by the callers rollback]
AS
EXEC rowpost.record_dispatch @endpoint = N'Sales', @message_id = N'm-1';
SAVE TRANSACTION before_it;

EXEC rowpost.forget_dispatch @endpoint = N'Sales', @message_id = N'm-1';
ROLLBACK TRANSACTION before_it;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.dispatch AS d);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE outbox_forget_dispatch.[test forget_dispatch leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.forget_dispatch @endpoint = N'Sales', @message_id = N'm-1';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
