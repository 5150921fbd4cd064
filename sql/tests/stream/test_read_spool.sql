SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_read_spool';
GO
CREATE OR ALTER PROCEDURE stream_read_spool.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_read_spool.[test read_spool returns what was moved as often as it is asked]
AS
CREATE TABLE #read
(
    id uniqueidentifier, correlation_id varchar(255), reply_to_address varchar(255), recoverable bit, expires datetime,
    headers nvarchar(max), body varbinary(max), row_version bigint
);
CREATE TABLE #moved (moved int, spooled_to bigint);
EXEC rowpost.[send_message:Sample] @headers = N'x', @body = 0x01;
INSERT INTO #moved (moved, spooled_to)
EXEC rowpost.[move_to_spool:Sample] @owner = N'one', @count = 2;

INSERT INTO #read (id, correlation_id, reply_to_address, recoverable, expires, headers, body, row_version)
EXEC rowpost.[read_spool:Sample] @above = 0, @upto = 9223372036854775807;
INSERT INTO #read (id, correlation_id, reply_to_address, recoverable, expires, headers, body, row_version)
EXEC rowpost.[read_spool:Sample] @above = 0, @upto = 9223372036854775807;

DECLARE @same int = (SELECT COUNT(*) FROM #read AS r WHERE r.headers = N'x' AND r.body = 0x01 AND r.recoverable = 1);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @same;
GO
CREATE OR ALTER PROCEDURE stream_read_spool.[test read_spool leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[read_spool:Sample] @above = 0, @upto = 10;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
