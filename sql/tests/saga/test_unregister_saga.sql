SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'saga_unregister_saga';
GO
CREATE OR ALTER PROCEDURE saga_unregister_saga.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE saga_unregister_saga.[test unregister_saga removes that entry and no other]
AS
EXEC rowpost.register_saga
    @saga_key = N'New',
    @saga_name = N'New',
    @schema_name = N'dbo',
    @table_name = N'New',
    @correlation_name = N'OrderId',
    @correlation_type = 'integer';

EXEC rowpost.unregister_saga @saga_key = N'SampleSaga';

DECLARE @gone int = (SELECT COUNT(*) FROM rowpost.saga AS s WHERE s.saga_key = N'SampleSaga');
DECLARE @others int = (SELECT COUNT(*) FROM rowpost.saga AS s WHERE s.saga_key = N'New');
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @gone;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @others;
GO
CREATE OR ALTER PROCEDURE saga_unregister_saga.[test unregister_saga leaves the table and its instances]
AS
EXEC rowpost.[insert_saga:SampleSaga]
    @id = 'aaaaaaaa-0000-0000-0000-000000000001',
    @correlation_value = N'A',
    @data = N'{}',
    @metadata = N'{}',
    @persistence_version = '1',
    @saga_type_version = '1';

EXEC rowpost.unregister_saga @saga_key = N'SampleSaga';

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.SampleSaga AS s);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE saga_unregister_saga.[test unregister_saga leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.unregister_saga @saga_key = N'SampleSaga';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
