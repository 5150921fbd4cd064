SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'stream_describe_stream';
GO
CREATE OR ALTER PROCEDURE stream_describe_stream.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE stream_describe_stream.[test describe_stream says how far row versions are drawn and that nobody else writes]
AS
-- Babelfish: INSERT EXEC of this procedure ends the session
CREATE TABLE #state
(
    stream_identity nvarchar(400), first_row_version bigint, last_row_version bigint, settled_row_version bigint, writers nvarchar(max),
    purged_row_version bigint, consumers int, on_standby bit
);
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';

INSERT INTO #state (stream_identity, first_row_version, last_row_version, settled_row_version, writers, purged_row_version, consumers, on_standby)
EXEC rowpost.[describe_stream:Sample];

DECLARE @right int = (
    SELECT COUNT(*)
    FROM #state AS t
    WHERE t.last_row_version = (SELECT MAX(s.RowVersion) FROM dbo.Sample AS s)
      AND t.first_row_version = (SELECT MIN(s.RowVersion) FROM dbo.Sample AS s)
      AND t.settled_row_version = t.last_row_version
      AND t.writers = N'[]'
      AND t.on_standby = 0
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE stream_describe_stream.[test describe_stream says how far the queue was purged]
AS
-- Babelfish: INSERT EXEC of this procedure ends the session
CREATE TABLE #state
(
    stream_identity nvarchar(400), first_row_version bigint, last_row_version bigint, settled_row_version bigint, writers nvarchar(max),
    purged_row_version bigint, consumers int, on_standby bit
);
CREATE TABLE #purged (purged int);
EXEC rowpost.[send_messages:Sample]
    @messages = N'[{"ordinal":0,"headers":"a"},{"ordinal":1,"headers":"b"},{"ordinal":2,"headers":"c"}]';
DECLARE @second bigint = (SELECT s.RowVersion FROM dbo.Sample AS s WHERE s.Headers = N'b');
INSERT INTO #purged (purged)
EXEC rowpost.[purge_queue:Sample] @count = 2;

INSERT INTO #state (stream_identity, first_row_version, last_row_version, settled_row_version, writers, purged_row_version, consumers, on_standby)
EXEC rowpost.[describe_stream:Sample];

DECLARE @purged bigint = (SELECT t.purged_row_version FROM #state AS t);
EXEC tSQLt.AssertEquals @Expected = @second, @Actual = @purged;
GO
CREATE OR ALTER PROCEDURE stream_describe_stream.[test describe_stream leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[describe_stream:Sample];

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
