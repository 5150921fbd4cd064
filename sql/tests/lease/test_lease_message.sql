SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'lease_lease_message';
GO
CREATE OR ALTER PROCEDURE lease_lease_message.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE lease_lease_message.[test lease_message moves the one row of that version]
AS
CREATE TABLE #leased (token uniqueidentifier);
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';
DECLARE @row_version bigint = (SELECT s.RowVersion FROM dbo.Sample AS s WHERE s.Headers = N'b');

INSERT INTO #leased (token)
EXEC rowpost.[lease_message:Sample] @row_version = @row_version, @owner = N'h/1/1', @seconds = 60;

DECLARE @held nvarchar(max) = (SELECT l.Headers FROM dbo.[Sample.Leased] AS l INNER JOIN #leased AS r ON l.token = r.token);
DECLARE @left int = (SELECT COUNT(*) FROM dbo.Sample AS s WHERE s.Headers IN (N'a', N'c'));
EXEC tSQLt.AssertEqualsString @Expected = N'b', @Actual = @held;
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @left;
GO
CREATE OR ALTER PROCEDURE lease_lease_message.[test lease_message moves nothing when the row is gone]
AS
EXEC rowpost.[lease_message:Sample] @row_version = 1, @owner = N'h/1/1', @seconds = 60;

EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.[Sample.Leased]';
GO
CREATE OR ALTER PROCEDURE lease_lease_message.[test lease_message refuses a lease of more than a day]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[lease_message:Sample] @row_version = 1, @owner = N'h/1/1', @seconds = 86401;
GO
CREATE OR ALTER PROCEDURE lease_lease_message.[test lease_message refuses an owner without a name]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51034;

EXEC rowpost.[lease_message:Sample] @row_version = 1, @owner = NULL, @seconds = 60;
GO
CREATE OR ALTER PROCEDURE lease_lease_message.[test lease_message leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[lease_message:Sample] @row_version = 1, @owner = N'h/1/1', @seconds = 60;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
