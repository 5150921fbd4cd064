SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'saga_update_saga';
GO
CREATE OR ALTER PROCEDURE saga_update_saga.[SetUp]
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
CREATE OR ALTER PROCEDURE saga_update_saga.[test update_saga stores the new state in the next version]
AS
EXEC rowpost.[update_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000001',
    @concurrency = 1,
    @data = N'{"Total":7}',
    @persistence_version = '0.2',
    @saga_type_version = '3';

DECLARE @changed int = (
    SELECT COUNT(*)
    FROM dbo.SampleSaga AS s
    WHERE s.Id = 'aaaaaaaa-0000-0000-0000-000000000001'
      AND s.Data = N'{"Total":7}'
      AND s.Concurrency = 2
      AND s.PersistenceVersion = '0.2'
      AND s.SagaTypeVersion = '3'
);
DECLARE @untouched int = (SELECT COUNT(*) FROM dbo.SampleSaga AS s WHERE s.Concurrency = 1);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @changed;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @untouched;
GO
CREATE OR ALTER PROCEDURE saga_update_saga.[test update_saga refuses another version than the stored one]
AS
EXEC rowpost.[update_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000001',
    @concurrency = 1,
    @data = N'{"Total":7}',
    @persistence_version = '0.2',
    @saga_type_version = '3';
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51015;

EXEC rowpost.[update_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000001',
    @concurrency = 1,
    @data = N'{"Total":7}',
    @persistence_version = '0.2',
    @saga_type_version = '3';
GO
CREATE OR ALTER PROCEDURE saga_update_saga.[test update_saga refuses an instance that is gone]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51015;

EXEC rowpost.[update_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000003',
    @concurrency = 1,
    @data = N'{"Total":7}',
    @persistence_version = '0.2',
    @saga_type_version = '3';
GO
CREATE OR ALTER PROCEDURE saga_update_saga.[test update_saga is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.[update_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000001',
    @concurrency = 1,
    @data = N'{"Total":7}',
    @persistence_version = '0.2',
    @saga_type_version = '3';
ROLLBACK TRANSACTION before_it;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.SampleSaga AS s WHERE s.Concurrency = 1);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE saga_update_saga.[test update_saga refuses a version of 24 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51034;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 24);

EXEC rowpost.[update_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000001', @concurrency = 1, @data = N'{}', @persistence_version = '1', @saga_type_version = @long;
GO
CREATE OR ALTER PROCEDURE saga_update_saga.[test update_saga leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[update_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000001',
    @concurrency = 1,
    @data = N'{"Total":7}',
    @persistence_version = '0.2',
    @saga_type_version = '3';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
