SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_read_range';
GO
CREATE OR ALTER PROCEDURE stream_read_range.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_read_range.[test read_range returns the rows of a range as stored and takes none]
AS
CREATE TABLE #read
(
    id uniqueidentifier, correlation_id varchar(255), reply_to_address varchar(255), recoverable bit, expires datetime,
    headers nvarchar(max), body varbinary(max), row_version bigint
);
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';
DECLARE @first bigint = (SELECT s.RowVersion FROM dbo.Sample AS s WHERE s.Headers = N'a');

INSERT INTO #read (id, correlation_id, reply_to_address, recoverable, expires, headers, body, row_version)
EXEC rowpost.[read_range:Sample] @above = @first, @upto = 9223372036854775807;

DECLARE @same int = (
    SELECT COUNT(*)
    FROM #read AS r
    INNER JOIN dbo.Sample AS s ON r.row_version = s.RowVersion
    WHERE r.id = s.Id AND r.headers = s.Headers AND r.body IS NULL AND r.recoverable = 1
);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @same;
GO
CREATE OR ALTER PROCEDURE stream_read_range.[test read_range leaves out headers and bodies that are not wanted]
AS
CREATE TABLE #read
(
    id uniqueidentifier, correlation_id varchar(255), reply_to_address varchar(255), recoverable bit, expires datetime,
    headers nvarchar(max), body varbinary(max), row_version bigint
);
EXEC rowpost.[send_message:Sample] @headers = N'x', @body = 0x01;

INSERT INTO #read (id, correlation_id, reply_to_address, recoverable, expires, headers, body, row_version)
EXEC rowpost.[read_range:Sample] @above = 0, @upto = 9223372036854775807, @with_headers = 0, @with_body = 0;

DECLARE @bare int = (SELECT COUNT(*) FROM #read AS r WHERE r.headers = N'' AND r.body IS NULL);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @bare;
GO
CREATE OR ALTER PROCEDURE stream_read_range.[test read_range filters by ids and by what headers contain]
AS
CREATE TABLE #read
(
    id uniqueidentifier, correlation_id varchar(255), reply_to_address varchar(255), recoverable bit, expires datetime,
    headers nvarchar(max), body varbinary(max), row_version bigint
);
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';
DECLARE @ids nvarchar(max) = (SELECT CONCAT(N'["', s.Id, N'","none"]') FROM dbo.Sample AS s WHERE s.Headers = N'b');

INSERT INTO #read (id, correlation_id, reply_to_address, recoverable, expires, headers, body, row_version)
EXEC rowpost.[read_range:Sample] @above = 0, @upto = 9223372036854775807, @ids = @ids;
INSERT INTO #read (id, correlation_id, reply_to_address, recoverable, expires, headers, body, row_version)
EXEC rowpost.[read_range:Sample] @above = 0, @upto = 9223372036854775807, @headers_contain = N'C';
INSERT INTO #read (id, correlation_id, reply_to_address, recoverable, expires, headers, body, row_version)
EXEC rowpost.[read_range:Sample] @above = 0, @upto = 9223372036854775807, @headers_contain = N'c';

DECLARE @found nvarchar(max) = (SELECT CONCAT(MIN(r.headers), MAX(r.headers), COUNT(*)) FROM #read AS r);
EXEC tSQLt.AssertEqualsString @Expected = N'bc2', @Actual = @found;
GO
CREATE OR ALTER PROCEDURE stream_read_range.[test read_range leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[read_range:Sample] @above = 0, @upto = 10;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
