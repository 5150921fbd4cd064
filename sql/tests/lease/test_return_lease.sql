SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'lease_return_lease';
GO
CREATE OR ALTER PROCEDURE lease_return_lease.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE lease_return_lease.[test return_lease brings all columns of the message back to their place]
AS
INSERT INTO dbo.Sample (Id, CorrelationId, ReplyToAddress, Expires, Headers, Body)
VALUES (NEWID(), 'c', 'r', '20990101', N'h', 0x0102);
DECLARE @row_version bigint = (SELECT s.RowVersion FROM dbo.Sample AS s);
EXEC rowpost.[lease_messages:Sample] @count = 1, @owner = N'h/1/1', @seconds = 60;
DECLARE @token uniqueidentifier = (SELECT l.token FROM dbo.[Sample.Leased] AS l);

EXEC rowpost.[return_lease:Sample] @token = @token;

DECLARE @same int = (
    SELECT COUNT(*)
    FROM dbo.Sample AS s
    WHERE s.RowVersion = @row_version AND s.CorrelationId = 'c' AND s.ReplyToAddress = 'r' AND s.Expires = '20990101'
      AND s.Headers = N'h' AND s.Body = 0x0102 AND s.Recoverable = 1
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @same;
EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.[Sample.Leased]';
GO
CREATE OR ALTER PROCEDURE lease_return_lease.[test return_lease lets the table number the next message]
AS
EXEC rowpost.[send_message:Sample] @headers = N'a';
EXEC rowpost.[lease_messages:Sample] @count = 1, @owner = N'h/1/1', @seconds = 60;
DECLARE @token uniqueidentifier = (SELECT l.token FROM dbo.[Sample.Leased] AS l);

EXEC rowpost.[return_lease:Sample] @token = @token;
EXEC rowpost.[send_message:Sample] @headers = N'b';

DECLARE @last nvarchar(max) = (SELECT TOP (1) s.Headers FROM dbo.Sample AS s ORDER BY s.RowVersion DESC);
EXEC tSQLt.AssertEqualsString @Expected = N'b', @Actual = @last;
GO
CREATE OR ALTER PROCEDURE lease_return_lease.[test return_lease refuses a lease that is lost]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51035;

EXEC rowpost.[return_lease:Sample] @token = 'aaaaaaaa-0000-0000-0000-000000000001';
GO
CREATE OR ALTER PROCEDURE lease_return_lease.[test return_lease leaves the callers session as it was]
AS
INSERT INTO dbo.[Sample.Leased] (token, Id, Headers, Body, RowVersion, owner, leased_at, due)
VALUES
(
    'aaaaaaaa-0000-0000-0000-000000000001', 'bbbbbbbb-0000-0000-0000-000000000005', N'a', 0x01, 5, N'h/1/1',
    SYSUTCDATETIME(), DATEADD(HOUR, 1, SYSUTCDATETIME())
);
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[return_lease:Sample] @token = 'aaaaaaaa-0000-0000-0000-000000000001';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
