SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'lease_return_expired';
GO
CREATE OR ALTER PROCEDURE lease_return_expired.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE lease_return_expired.[test return_expired returns the longest expired and no more than asked for]
AS
INSERT INTO dbo.[Sample.Leased] (token, Id, Headers, Body, RowVersion, owner, leased_at, due)
VALUES
(
    'aaaaaaaa-0000-0000-0000-000000000001', 'bbbbbbbb-0000-0000-0000-000000000005', N'a', 0x01, 5, N'h/1/1',
    SYSUTCDATETIME(), '20240102'
);
INSERT INTO dbo.[Sample.Leased] (token, Id, Headers, Body, RowVersion, owner, leased_at, due)
VALUES
(
    'aaaaaaaa-0000-0000-0000-000000000002', 'bbbbbbbb-0000-0000-0000-000000000006', N'b', 0x01, 6, N'h/1/1',
    SYSUTCDATETIME(), '20240101'
);

EXEC rowpost.[return_expired:Sample] @count = 1;

DECLARE @back nvarchar(max) = (SELECT s.Headers FROM dbo.Sample AS s WHERE s.RowVersion = 6);
DECLARE @left nvarchar(max) = (SELECT l.Headers FROM dbo.[Sample.Leased] AS l);
EXEC tSQLt.AssertEqualsString @Expected = N'b', @Actual = @back;
EXEC tSQLt.AssertEqualsString @Expected = N'a', @Actual = @left;
GO
CREATE OR ALTER PROCEDURE lease_return_expired.[test return_expired says what it returned and who held it]
AS
-- Babelfish: INSERT EXEC misses the rows of an OUTPUT clause
CREATE TABLE #returned (id uniqueidentifier, row_version bigint, expired bit, headers nvarchar(max), body varbinary(max), owner nvarchar(200));
INSERT INTO dbo.[Sample.Leased] (token, Id, Headers, Body, RowVersion, owner, leased_at, due)
VALUES
(
    'aaaaaaaa-0000-0000-0000-000000000001', 'bbbbbbbb-0000-0000-0000-000000000005', N'a', 0x01, 5, N'h/1/1',
    SYSUTCDATETIME(), '20240101'
);

INSERT INTO #returned (id, row_version, expired, headers, body, owner)
EXEC rowpost.[return_expired:Sample] @count = 10;

DECLARE @right int = (
    SELECT COUNT(*) FROM #returned AS r WHERE r.row_version = 5 AND r.headers = N'a' AND r.body = 0x01 AND r.owner = N'h/1/1'
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE lease_return_expired.[test return_expired leaves what is not due]
AS
INSERT INTO dbo.[Sample.Leased] (token, Id, Headers, Body, RowVersion, owner, leased_at, due)
VALUES
(
    'aaaaaaaa-0000-0000-0000-000000000001', 'bbbbbbbb-0000-0000-0000-000000000005', N'a', 0x01, 5, N'h/1/1',
    SYSUTCDATETIME(), DATEADD(HOUR, 1, SYSUTCDATETIME())
);

EXEC rowpost.[return_expired:Sample] @count = 10;

EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.Sample';
GO
CREATE OR ALTER PROCEDURE lease_return_expired.[test return_expired returns the message of a process that has ended]
AS
INSERT INTO dbo.[Sample.Leased] (token, Id, Headers, Body, RowVersion, owner, leased_at, due)
VALUES
(
    'aaaaaaaa-0000-0000-0000-000000000001', 'bbbbbbbb-0000-0000-0000-000000000005', N'a', 0x01, 5, N'h/7/1',
    SYSUTCDATETIME(), DATEADD(HOUR, 1, SYSUTCDATETIME())
);
INSERT INTO dbo.[Sample.Leased] (token, Id, Headers, Body, RowVersion, owner, leased_at, due)
VALUES
(
    'aaaaaaaa-0000-0000-0000-000000000002', 'bbbbbbbb-0000-0000-0000-000000000006', N'a', 0x01, 6, N'h/77/1',
    SYSUTCDATETIME(), DATEADD(HOUR, 1, SYSUTCDATETIME())
);

EXEC rowpost.[return_expired:Sample] @count = 1, @row_version = 5, @owner = N'h/7/';
EXEC rowpost.[return_expired:Sample] @count = 1, @row_version = 6, @owner = N'h/7/';

DECLARE @back bigint = (SELECT s.RowVersion FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 5, @Actual = @back;
GO
CREATE OR ALTER PROCEDURE lease_return_expired.[test return_expired refuses a count of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[return_expired:Sample] @count = 0;
GO
CREATE OR ALTER PROCEDURE lease_return_expired.[test return_expired leaves the callers session as it was]
AS
INSERT INTO dbo.[Sample.Leased] (token, Id, Headers, Body, RowVersion, owner, leased_at, due)
VALUES
(
    'aaaaaaaa-0000-0000-0000-000000000001', 'bbbbbbbb-0000-0000-0000-000000000005', N'a', 0x01, 5, N'h/1/1',
    SYSUTCDATETIME(), '20240101'
);
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[return_expired:Sample] @count = 10;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
