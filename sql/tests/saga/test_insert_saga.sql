SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'saga_insert_saga';
GO
CREATE OR ALTER PROCEDURE saga_insert_saga.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE saga_insert_saga.[test insert_saga stores the instance as given in its first version]
AS
EXEC rowpost.[insert_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000001',
    @correlation_value = N'漢🚀',
    @data = N'{"Total":5}',
    @metadata = N'{"Originator":"Web"}',
    @persistence_version = '0.1',
    @saga_type_version = '2.0';

DECLARE @stored int = (
    SELECT COUNT(*)
    FROM dbo.SampleSaga AS s
    WHERE s.Id = 'aaaaaaaa-0000-0000-0000-000000000001'
      AND s.Correlation_Sample = N'漢🚀'
      AND s.Data = N'{"Total":5}'
      AND s.Metadata = N'{"Originator":"Web"}'
      AND s.PersistenceVersion = '0.1'
      AND s.SagaTypeVersion = '2.0'
      AND s.Concurrency = 1
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @stored;
GO
CREATE OR ALTER PROCEDURE saga_insert_saga.[test insert_saga refuses a correlation value that is there already]
AS
EXEC rowpost.[insert_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000001',
    @correlation_value = N'A',
    @data = N'{}',
    @metadata = N'{}',
    @persistence_version = '1',
    @saga_type_version = '1';
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51015;

EXEC rowpost.[insert_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000002',
    @correlation_value = N'A',
    @data = N'{}',
    @metadata = N'{}',
    @persistence_version = '1',
    @saga_type_version = '1';
GO
CREATE OR ALTER PROCEDURE saga_insert_saga.[test insert_saga takes two hundred characters]
AS
DECLARE @value nvarchar(4000) = REPLICATE(N'ä', 200);

EXEC rowpost.[insert_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000001',
    @correlation_value = @value,
    @data = N'{}',
    @metadata = N'{}',
    @persistence_version = '1',
    @saga_type_version = '1';

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.SampleSaga AS s WHERE s.Correlation_Sample = @value);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE saga_insert_saga.[test insert_saga refuses a correlation value of 201 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51014;
DECLARE @value nvarchar(4000) = REPLICATE(N'x', 201);

EXEC rowpost.[insert_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000001',
    @correlation_value = @value,
    @data = N'{}',
    @metadata = N'{}',
    @persistence_version = '1',
    @saga_type_version = '1';
GO
CREATE OR ALTER PROCEDURE saga_insert_saga.[test insert_saga refuses an instance without correlation value]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51014;

EXEC rowpost.[insert_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000001',
    @correlation_value = NULL,
    @data = N'{}',
    @metadata = N'{}',
    @persistence_version = '1',
    @saga_type_version = '1';
GO
CREATE OR ALTER PROCEDURE saga_insert_saga.[test insert_saga is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.[insert_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000001',
    @correlation_value = N'A',
    @data = N'{}',
    @metadata = N'{}',
    @persistence_version = '1',
    @saga_type_version = '1';
ROLLBACK TRANSACTION before_it;

EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.SampleSaga';
GO
CREATE OR ALTER PROCEDURE saga_insert_saga.[test insert_saga refuses a version of 24 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51034;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 24);

EXEC rowpost.[insert_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000009', @correlation_value = N'B', @data = N'{}', @metadata = N'{}',
    @persistence_version = @long, @saga_type_version = '1';
GO
CREATE OR ALTER PROCEDURE saga_insert_saga.[test insert_saga leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[insert_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000001',
    @correlation_value = N'A',
    @data = N'{}',
    @metadata = N'{}',
    @persistence_version = '1',
    @saga_type_version = '1';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
