SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'saga_correlate_sagas';
GO
CREATE OR ALTER PROCEDURE saga_correlate_sagas.[SetUp]
AS
EXEC rowpost_tests.empty_tables;

INSERT INTO dbo.SampleSaga
    (Id, Metadata, Data, PersistenceVersion, SagaTypeVersion, Concurrency, Correlation_Sample)
VALUES
    ('aaaaaaaa-0000-0000-0000-000000000001', N'{}', N'{"Sample":"one"}', '1', '1', 1, NULL),
    ('aaaaaaaa-0000-0000-0000-000000000002', N'{}', N'{"Sample":"two"}', '1', '1', 1, NULL),
    ('aaaaaaaa-0000-0000-0000-000000000003', N'{}', N'{"Other":"x"}', '1', '1', 1, NULL);
GO
CREATE OR ALTER PROCEDURE saga_correlate_sagas.[test correlate_sagas writes what states hold and no version]
AS
EXEC rowpost.[correlate_sagas:SampleSaga] @count = 1000;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.SampleSaga AS s WHERE s.Correlation_Sample IN (N'one', N'two') AND s.Concurrency = 1);
DECLARE @missing int = (SELECT COUNT(*) FROM dbo.SampleSaga AS s WHERE s.Correlation_Sample IS NULL);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @rows;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @missing;
GO
CREATE OR ALTER PROCEDURE saga_correlate_sagas.[test correlate_sagas writes so many at most]
AS
EXEC rowpost.[correlate_sagas:SampleSaga] @count = 1;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.SampleSaga AS s WHERE s.Correlation_Sample IS NOT NULL);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE saga_correlate_sagas.[test correlate_sagas continues after an id]
AS
EXEC rowpost.[correlate_sagas:SampleSaga] @count = 1000, @after_id = 'aaaaaaaa-0000-0000-0000-000000000001';

DECLARE @first int = (SELECT COUNT(*) FROM dbo.SampleSaga AS s WHERE s.Correlation_Sample = N'one');
DECLARE @second int = (SELECT COUNT(*) FROM dbo.SampleSaga AS s WHERE s.Correlation_Sample = N'two');
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @first;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @second;
GO
CREATE OR ALTER PROCEDURE saga_correlate_sagas.[test correlate_sagas refuses a state that is no JSON]
AS
UPDATE s
SET s.Data = N'no JSON'
FROM dbo.SampleSaga AS s;
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51014;

EXEC rowpost.[correlate_sagas:SampleSaga] @count = 1000;
GO
CREATE OR ALTER PROCEDURE saga_correlate_sagas.[test correlate_sagas refuses two states with the same value]
AS
UPDATE s
SET s.Data = N'{"Sample":"one"}'
FROM dbo.SampleSaga AS s;
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51015;

EXEC rowpost.[correlate_sagas:SampleSaga] @count = 1000;
GO
CREATE OR ALTER PROCEDURE saga_correlate_sagas.[test correlate_sagas refuses a value of 201 characters]
AS
UPDATE s
SET s.Data = CONCAT(N'{"Sample":"', REPLICATE(N'x', 201), N'"}')
FROM dbo.SampleSaga AS s;
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51014;

EXEC rowpost.[correlate_sagas:SampleSaga] @count = 1000;
GO
CREATE OR ALTER PROCEDURE saga_correlate_sagas.[test correlate_sagas refuses a count of 1001]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[correlate_sagas:SampleSaga] @count = 1001;
GO
CREATE OR ALTER PROCEDURE saga_correlate_sagas.[test correlate_sagas leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[correlate_sagas:SampleSaga] @count = 1000;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
