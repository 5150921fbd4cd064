SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'transaction_probe_transaction';
GO
CREATE OR ALTER PROCEDURE transaction_probe_transaction.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE transaction_probe_transaction.[test probe_transaction says no for one that nobody runs]
AS
CREATE TABLE #probed (running bit);

INSERT INTO #probed (running)
EXEC rowpost.probe_transaction @transaction_id = 'tx-1';

DECLARE @running bit = (SELECT p.running FROM #probed AS p);
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @running;
GO
CREATE OR ALTER PROCEDURE transaction_probe_transaction.[test probe_transaction takes a transaction that looks like SQL as one]
AS
CREATE TABLE #probed (running bit);

INSERT INTO #probed (running)
EXEC rowpost.probe_transaction @transaction_id = '''); DELETE FROM rowpost.decision; --';

DECLARE @running bit = (SELECT p.running FROM #probed AS p);
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @running;
GO
CREATE OR ALTER PROCEDURE transaction_probe_transaction.[test probe_transaction takes no lock]
AS
EXEC rowpost.probe_transaction @transaction_id = 'tx-1';

DECLARE @of_transaction nvarchar(32) = APPLOCK_MODE(N'public', N'rowpost tx-1', N'Transaction');
DECLARE @of_session nvarchar(32) = APPLOCK_MODE(N'public', N'rowpost tx-1', N'Session');
EXEC tSQLt.AssertEqualsString @Expected = N'NoLock', @Actual = @of_transaction;
EXEC tSQLt.AssertEqualsString @Expected = N'NoLock', @Actual = @of_session;
GO
CREATE OR ALTER PROCEDURE transaction_probe_transaction.[test probe_transaction leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.probe_transaction @transaction_id = 'tx-1';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
