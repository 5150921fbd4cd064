SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'saga_complete_saga';
GO
CREATE OR ALTER PROCEDURE saga_complete_saga.[SetUp]
AS
EXEC rowpost_tests.empty_tables;

EXEC rowpost.[insert_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000001',
    @correlation_value = N'A',
    @data = N'{"Total":5}',
    @metadata = N'{}',
    @persistence_version = '1',
    @saga_type_version = '1';
EXEC rowpost.[insert_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000002',
    @correlation_value = N'B',
    @data = N'{}',
    @metadata = N'{}',
    @persistence_version = '1',
    @saga_type_version = '1';
GO
CREATE OR ALTER PROCEDURE saga_complete_saga.[test complete_saga removes the instance alone]
AS
EXEC rowpost.[complete_saga:SampleSaga] @id = 'aaaaaaaa-0000-0000-0000-000000000001', @concurrency = 1;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.SampleSaga AS s);
DECLARE @gone int = (SELECT COUNT(*) FROM dbo.SampleSaga AS s WHERE s.Id = 'aaaaaaaa-0000-0000-0000-000000000001');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @gone;
GO
CREATE OR ALTER PROCEDURE saga_complete_saga.[test complete_saga refuses another version than the stored one]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51015;

EXEC rowpost.[complete_saga:SampleSaga] @id = 'aaaaaaaa-0000-0000-0000-000000000001', @concurrency = 2;
GO
CREATE OR ALTER PROCEDURE saga_complete_saga.[test complete_saga refuses an instance that is gone]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51015;

EXEC rowpost.[complete_saga:SampleSaga] @id = 'aaaaaaaa-0000-0000-0000-000000000003', @concurrency = 1;
GO
CREATE OR ALTER PROCEDURE saga_complete_saga.[test complete_saga is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.[complete_saga:SampleSaga] @id = 'aaaaaaaa-0000-0000-0000-000000000001', @concurrency = 1;
ROLLBACK TRANSACTION before_it;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.SampleSaga AS s);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE saga_complete_saga.[test complete_saga leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[complete_saga:SampleSaga] @id = 'aaaaaaaa-0000-0000-0000-000000000001', @concurrency = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
