SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'transaction_record_decision';
GO
CREATE OR ALTER PROCEDURE transaction_record_decision.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE transaction_record_decision.[test record_decision writes the decision down]
AS
DECLARE @before datetime2(3) = DATEADD(SECOND, -1, SYSUTCDATETIME());

EXEC rowpost.record_decision @queue_key = N'Sample', @transaction_id = 'tx-1', @participants = N'["here","there"]';

DECLARE @right int = (
    SELECT COUNT(*)
    FROM rowpost.decision AS d
    WHERE d.transaction_id = 'tx-1' AND d.participants = N'["here","there"]'
      AND d.decided_at BETWEEN @before AND DATEADD(SECOND, 1, SYSUTCDATETIME())
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE transaction_record_decision.[test record_decision locks the transaction until the caller ends]
AS
EXEC rowpost.record_decision @queue_key = N'Sample', @transaction_id = 'tx-1', @participants = N'["here","there"]';

DECLARE @mode nvarchar(32) = APPLOCK_MODE(N'public', N'rowpost tx-1', N'Transaction');
EXEC tSQLt.AssertEqualsString @Expected = N'Exclusive', @Actual = @mode;
GO
CREATE OR ALTER PROCEDURE transaction_record_decision.[test record_decision refuses a transaction that is decided]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 2627;

EXEC rowpost.record_decision @queue_key = N'Sample', @transaction_id = 'tx-1', @participants = N'["here","there"]';
EXEC rowpost.record_decision @queue_key = N'Sample', @transaction_id = 'tx-1', @participants = N'["here","there"]';
GO
CREATE OR ALTER PROCEDURE transaction_record_decision.[test record_decision refuses participants that are NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 515;

EXEC rowpost.record_decision @queue_key = N'Sample', @transaction_id = 'tx-1', @participants = NULL;
GO
CREATE OR ALTER PROCEDURE transaction_record_decision.[test record_decision takes a transaction that looks like SQL as one]
AS
EXEC rowpost.record_decision @queue_key = N'Sample', @transaction_id = '''; DELETE FROM rowpost.decision; --', @participants = N'["here","there"]';

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.decision AS d WHERE d.transaction_id = '''; DELETE FROM rowpost.decision; --');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE transaction_record_decision.[test record_decision is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.record_decision @queue_key = N'Sample', @transaction_id = 'tx-1', @participants = N'["here","there"]';
ROLLBACK TRANSACTION before_it;

EXEC tSQLt.AssertEmptyTable @TableName = N'rowpost.decision';
GO
CREATE OR ALTER PROCEDURE transaction_record_decision.[test record_decision refuses an id of 65 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51034;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 65);

EXEC rowpost.record_decision @queue_key = N'Sample', @transaction_id = @long, @participants = N'[]';
GO
CREATE OR ALTER PROCEDURE transaction_record_decision.[test record_decision leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.record_decision @queue_key = N'Sample', @transaction_id = 'tx-1', @participants = N'["here","there"]';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
