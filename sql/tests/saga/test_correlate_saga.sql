SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'saga_correlate_saga';
GO
CREATE OR ALTER PROCEDURE saga_correlate_saga.[SetUp]
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
CREATE OR ALTER PROCEDURE saga_correlate_saga.[test correlate_saga writes the second correlation of that instance alone]
AS
EXEC rowpost.[correlate_saga:SampleSaga] @id = 'aaaaaaaa-0000-0000-0000-000000000001', @correlation_value = N'second';

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.SampleSaga AS s WHERE s.Correlation_Sample = N'second' AND s.Id = 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @all int = (SELECT COUNT(*) FROM dbo.SampleSaga AS s WHERE s.Correlation_Sample = N'second');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @all;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE saga_correlate_saga.[test correlate_saga takes NULL for what is not known yet]
AS
EXEC rowpost.[correlate_saga:SampleSaga] @id = 'aaaaaaaa-0000-0000-0000-000000000001', @correlation_value = N'second';

EXEC rowpost.[correlate_saga:SampleSaga] @id = 'aaaaaaaa-0000-0000-0000-000000000001', @correlation_value = NULL;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.SampleSaga AS s WHERE s.Correlation_Sample IS NULL AND s.Id = 'aaaaaaaa-0000-0000-0000-000000000001');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE saga_correlate_saga.[test correlate_saga refuses a value that another instance has]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51015;

EXEC rowpost.[correlate_saga:SampleSaga] @id = 'aaaaaaaa-0000-0000-0000-000000000001', @correlation_value = N'B';
GO
CREATE OR ALTER PROCEDURE saga_correlate_saga.[test correlate_saga refuses a value of 201 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51014;
DECLARE @value nvarchar(4000) = REPLICATE(N'x', 201);

EXEC rowpost.[correlate_saga:SampleSaga] @id = 'aaaaaaaa-0000-0000-0000-000000000001', @correlation_value = @value;
GO
CREATE OR ALTER PROCEDURE saga_correlate_saga.[test correlate_saga leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[correlate_saga:SampleSaga] @id = 'aaaaaaaa-0000-0000-0000-000000000001', @correlation_value = N'x';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
