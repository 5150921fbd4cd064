SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'transaction_forget_decision';
GO
CREATE OR ALTER PROCEDURE transaction_forget_decision.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE transaction_forget_decision.[test forget_decision drops that one decision]
AS
EXEC rowpost.record_decision @queue_key = N'Sample', @transaction_id = 'tx-1', @participants = N'["here","there"]';
EXEC rowpost.record_decision @queue_key = N'Sample', @transaction_id = 'tx-2', @participants = N'["here","there"]';

EXEC rowpost.forget_decision @transaction_id = 'tx-1';

DECLARE @left varchar(64) = (SELECT d.transaction_id FROM rowpost.decision AS d);
EXEC tSQLt.AssertEqualsString @Expected = N'tx-2', @Actual = @left;
GO
CREATE OR ALTER PROCEDURE transaction_forget_decision.[test forget_decision does nothing without a decision]
AS
EXEC rowpost.record_decision @queue_key = N'Sample', @transaction_id = 'tx-1', @participants = N'["here","there"]';

EXEC rowpost.forget_decision @transaction_id = 'tx-2';
EXEC rowpost.forget_decision @transaction_id = NULL;

DECLARE @left int = (SELECT COUNT(*) FROM rowpost.decision AS d);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @left;
GO
CREATE OR ALTER PROCEDURE transaction_forget_decision.[test forget_decision takes a transaction that looks like SQL as one]
AS
EXEC rowpost.record_decision @queue_key = N'Sample', @transaction_id = 'tx-1', @participants = N'["here","there"]';

EXEC rowpost.forget_decision @transaction_id = ''' OR 1 = 1; --';

DECLARE @left int = (SELECT COUNT(*) FROM rowpost.decision AS d);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @left;
GO
CREATE OR ALTER PROCEDURE transaction_forget_decision.[test forget_decision is undone by the callers rollback]
AS
EXEC rowpost.record_decision @queue_key = N'Sample', @transaction_id = 'tx-1', @participants = N'["here","there"]';
SAVE TRANSACTION before_it;

EXEC rowpost.forget_decision @transaction_id = 'tx-1';
ROLLBACK TRANSACTION before_it;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.decision AS d);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE transaction_forget_decision.[test forget_decision leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.forget_decision @transaction_id = 'tx-1';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
