SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'saga_list_sagas';
GO
CREATE OR ALTER PROCEDURE saga_list_sagas.[SetUp]
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
CREATE OR ALTER PROCEDURE saga_list_sagas.[test list_sagas reads instances with their state]
AS
CREATE TABLE #listed
(
    id uniqueidentifier,
    correlation_value nvarchar(200),
    concurrency int,
    saga_type_version varchar(23),
    data nvarchar(max),
    metadata nvarchar(max)
);

INSERT INTO #listed (id, correlation_value, concurrency, saga_type_version, data, metadata)
EXEC rowpost.[list_sagas:SampleSaga] @count = 10;

SELECT l.id, l.correlation_value, l.data INTO #actual FROM #listed AS l;
SELECT TOP (0) a.id, a.correlation_value, a.data INTO #expected FROM #actual AS a;
INSERT INTO #expected (id, correlation_value, data)
VALUES
    ('aaaaaaaa-0000-0000-0000-000000000001', N'A', N'{"Total":5}'),
    ('aaaaaaaa-0000-0000-0000-000000000002', N'B', N'{}');
EXEC tSQLt.AssertEqualsTable @Expected = N'#expected', @Actual = N'#actual';
GO
CREATE OR ALTER PROCEDURE saga_list_sagas.[test list_sagas reads no more than were asked for]
AS
CREATE TABLE #listed
(
    id uniqueidentifier,
    correlation_value nvarchar(200),
    concurrency int,
    saga_type_version varchar(23),
    data nvarchar(max),
    metadata nvarchar(max)
);

INSERT INTO #listed (id, correlation_value, concurrency, saga_type_version, data, metadata)
EXEC rowpost.[list_sagas:SampleSaga] @count = 1;

DECLARE @rows int = (SELECT COUNT(*) FROM #listed AS l WHERE l.id = 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @all int = (SELECT COUNT(*) FROM #listed AS l);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @all;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE saga_list_sagas.[test list_sagas goes on after an id]
AS
CREATE TABLE #listed
(
    id uniqueidentifier,
    correlation_value nvarchar(200),
    concurrency int,
    saga_type_version varchar(23),
    data nvarchar(max),
    metadata nvarchar(max)
);

INSERT INTO #listed (id, correlation_value, concurrency, saga_type_version, data, metadata)
EXEC rowpost.[list_sagas:SampleSaga] @count = 10, @after_id = 'aaaaaaaa-0000-0000-0000-000000000001';

DECLARE @rows int = (SELECT COUNT(*) FROM #listed AS l WHERE l.id = 'aaaaaaaa-0000-0000-0000-000000000002');
DECLARE @all int = (SELECT COUNT(*) FROM #listed AS l);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @all;
GO
CREATE OR ALTER PROCEDURE saga_list_sagas.[test list_sagas refuses a count of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[list_sagas:SampleSaga] @count = 0;
GO
CREATE OR ALTER PROCEDURE saga_list_sagas.[test list_sagas refuses a count above one thousand]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[list_sagas:SampleSaga] @count = 1001;
GO
CREATE OR ALTER PROCEDURE saga_list_sagas.[test list_sagas leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[list_sagas:SampleSaga] @count = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
