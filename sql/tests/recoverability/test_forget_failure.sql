SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'recoverability_forget_failure';
GO
CREATE OR ALTER PROCEDURE recoverability_forget_failure.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE recoverability_forget_failure.[test forget_failure drops the count of that message alone]
AS
EXEC rowpost.record_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000001';
EXEC rowpost.record_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000002';
EXEC rowpost.record_failure @queue_key = N'Other', @id = 'aaaaaaaa-0000-0000-0000-000000000001';

EXEC rowpost.forget_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000001';

DECLARE @gone int = (
    SELECT COUNT(*) FROM rowpost.failure AS f WHERE f.queue_key = N'Sample' AND f.id = 'aaaaaaaa-0000-0000-0000-000000000001'
);
DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.failure AS f);
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @gone;
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE recoverability_forget_failure.[test forget_failure has nothing against a message without a count]
AS
EXEC rowpost.forget_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000001';

EXEC tSQLt.AssertEmptyTable @TableName = N'rowpost.failure';
GO
CREATE OR ALTER PROCEDURE recoverability_forget_failure.[test forget_failure is undone by the callers rollback]
AS
EXEC rowpost.record_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000001';
SAVE TRANSACTION before_it;

EXEC rowpost.forget_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000001';
ROLLBACK TRANSACTION before_it;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.failure AS f);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE recoverability_forget_failure.[test forget_failure leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.forget_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-000000000001';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
