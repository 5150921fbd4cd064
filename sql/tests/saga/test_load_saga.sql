SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'saga_load_saga';
GO
CREATE OR ALTER PROCEDURE saga_load_saga.[SetUp]
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
CREATE OR ALTER PROCEDURE saga_load_saga.[test load_saga finds an instance by its correlation value]
AS
CREATE TABLE #loaded (id uniqueidentifier, data nvarchar(max), metadata nvarchar(max), concurrency int);

INSERT INTO #loaded (id, data, metadata, concurrency)
EXEC rowpost.[load_saga:SampleSaga] @correlation_value = N'A', @locked = 0, @lock_timeout_ms = 1000;

DECLARE @data nvarchar(max) = (SELECT l.data FROM #loaded AS l WHERE l.concurrency = 1);
EXEC tSQLt.AssertEqualsString @Expected = N'{"Total":5}', @Actual = @data;
GO
CREATE OR ALTER PROCEDURE saga_load_saga.[test load_saga finds an instance by its id]
AS
CREATE TABLE #loaded (id uniqueidentifier, data nvarchar(max), metadata nvarchar(max), concurrency int);

INSERT INTO #loaded (id, data, metadata, concurrency)
EXEC rowpost.[load_saga:SampleSaga] @id = 'aaaaaaaa-0000-0000-0000-000000000002', @locked = 1, @lock_timeout_ms = 1000;

DECLARE @found int = (SELECT COUNT(*) FROM #loaded AS l WHERE l.id = 'aaaaaaaa-0000-0000-0000-000000000002');
DECLARE @rows int = (SELECT COUNT(*) FROM #loaded AS l);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @found;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE saga_load_saga.[test load_saga returns nothing where there is no instance]
AS
CREATE TABLE #loaded (id uniqueidentifier, data nvarchar(max), metadata nvarchar(max), concurrency int);

INSERT INTO #loaded (id, data, metadata, concurrency)
EXEC rowpost.[load_saga:SampleSaga] @correlation_value = N'C', @locked = 0, @lock_timeout_ms = 1000;
INSERT INTO #loaded (id, data, metadata, concurrency)
EXEC rowpost.[load_saga:SampleSaga] @id = 'aaaaaaaa-0000-0000-0000-000000000003', @locked = 1, @lock_timeout_ms = 1000;

EXEC tSQLt.AssertEmptyTable @TableName = N'#loaded';
GO
CREATE OR ALTER PROCEDURE saga_load_saga.[test load_saga refuses a correlation value of 201 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51014;
DECLARE @value nvarchar(4000) = REPLICATE(N'x', 201);

EXEC rowpost.[load_saga:SampleSaga] @correlation_value = @value, @locked = 0, @lock_timeout_ms = 1000;
GO
CREATE OR ALTER PROCEDURE saga_load_saga.[test load_saga refuses to look for nothing]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51014;

EXEC rowpost.[load_saga:SampleSaga] @locked = 0, @lock_timeout_ms = 1000;
GO
CREATE OR ALTER PROCEDURE saga_load_saga.[test load_saga takes text that looks like SQL as text]
AS
DECLARE @value nvarchar(200) = N'''; DELETE FROM dbo.SampleSaga; --';
CREATE TABLE #loaded (id uniqueidentifier, data nvarchar(max), metadata nvarchar(max), concurrency int);

INSERT INTO #loaded (id, data, metadata, concurrency)
EXEC rowpost.[load_saga:SampleSaga] @correlation_value = @value, @locked = 0, @lock_timeout_ms = 1000;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.SampleSaga AS s);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @rows;
EXEC tSQLt.AssertEmptyTable @TableName = N'#loaded';
GO
CREATE OR ALTER PROCEDURE saga_load_saga.[test load_saga leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[load_saga:SampleSaga] @correlation_value = N'A', @locked = 1, @lock_timeout_ms = 1000;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
