SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'recoverability_record_failure';
GO
CREATE OR ALTER PROCEDURE recoverability_record_failure.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE recoverability_record_failure.[test record_failure counts the first attempt as one]
AS
CREATE TABLE #recorded (attempts int);

INSERT INTO #recorded (attempts)
EXEC rowpost.record_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000001';

DECLARE @attempts int = (SELECT r.attempts FROM #recorded AS r);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @attempts;
GO
CREATE OR ALTER PROCEDURE recoverability_record_failure.[test record_failure counts up for the same message]
AS
CREATE TABLE #recorded (attempts int);
EXEC rowpost.record_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC rowpost.record_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000001';

INSERT INTO #recorded (attempts)
EXEC rowpost.record_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000001';

DECLARE @attempts int = (SELECT r.attempts FROM #recorded AS r);
EXEC tSQLt.AssertEquals @Expected = 3, @Actual = @attempts;
GO
CREATE OR ALTER PROCEDURE recoverability_record_failure.[test record_failure counts each queue and message apart]
AS
CREATE TABLE #recorded (attempts int);
EXEC rowpost.record_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC rowpost.record_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000002';

INSERT INTO #recorded (attempts)
EXEC rowpost.record_failure @queue_key = N'Other', @id = 'aaaaaaaa-0000-0000-0000-000000000001';

DECLARE @attempts int = (SELECT r.attempts FROM #recorded AS r);
DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.failure AS f);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @attempts;
EXEC tSQLt.AssertEquals @Expected = 3, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE recoverability_record_failure.[test record_failure drops counts nobody touched for a week]
AS
INSERT INTO rowpost.failure (queue_key, id, attempts, failed_at)
VALUES
(N'Sample', 'aaaaaaaa-0000-0000-0000-000000000001', 5, DATEADD(DAY, -8, SYSUTCDATETIME())),
(N'Sample', 'aaaaaaaa-0000-0000-0000-000000000002', 5, DATEADD(DAY, -6, SYSUTCDATETIME()));

EXEC rowpost.record_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000003';

DECLARE @old int = (SELECT COUNT(*) FROM rowpost.failure AS f WHERE f.id = 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.failure AS f);
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @old;
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE recoverability_record_failure.[test record_failure takes a key that looks like SQL as a key]
AS
EXEC rowpost.record_failure @queue_key = N'''; DELETE FROM rowpost.failure; --', @id = 'aaaaaaaa-0000-0000-0000-000000000001';

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.failure AS f WHERE f.queue_key = N'''; DELETE FROM rowpost.failure; --');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE recoverability_record_failure.[test record_failure is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.record_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000001';
ROLLBACK TRANSACTION before_it;

EXEC tSQLt.AssertEmptyTable @TableName = N'rowpost.failure';
GO
CREATE OR ALTER PROCEDURE recoverability_record_failure.[test record_failure refuses a key of 129 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51034;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 129);

EXEC rowpost.record_failure @queue_key = @long, @id = 'aaaaaaaa-0000-0000-0000-000000000009';
GO
CREATE OR ALTER PROCEDURE recoverability_record_failure.[test record_failure leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.record_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000001';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
CREATE OR ALTER PROCEDURE recoverability_record_failure.[test record_failure works under SERIALIZABLE and keeps it]
AS
-- Babelfish: cannot change the isolation level within a transaction
SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;

EXEC rowpost.record_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000001';

DECLARE @level int = (SELECT s.transaction_isolation_level FROM sys.dm_exec_sessions AS s WHERE s.session_id = @@SPID);
EXEC tSQLt.AssertEquals @Expected = 4, @Actual = @level;
GO
