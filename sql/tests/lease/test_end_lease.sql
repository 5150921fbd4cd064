SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'lease_end_lease';
GO
CREATE OR ALTER PROCEDURE lease_end_lease.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE lease_end_lease.[test end_lease removes the message of the token and no other one]
AS
INSERT INTO dbo.[Sample.Leased] (token, Id, Headers, Body, RowVersion, owner, leased_at, due)
VALUES
(
    'aaaaaaaa-0000-0000-0000-000000000001', 'bbbbbbbb-0000-0000-0000-000000000005', N'a', 0x01, 5, N'h/1/1',
    SYSUTCDATETIME(), DATEADD(HOUR, 1, SYSUTCDATETIME())
);
INSERT INTO dbo.[Sample.Leased] (token, Id, Headers, Body, RowVersion, owner, leased_at, due)
VALUES
(
    'aaaaaaaa-0000-0000-0000-000000000002', 'bbbbbbbb-0000-0000-0000-000000000006', N'b', 0x01, 6, N'h/1/1',
    SYSUTCDATETIME(), DATEADD(HOUR, 1, SYSUTCDATETIME())
);

EXEC rowpost.[end_lease:Sample] @token = 'aaaaaaaa-0000-0000-0000-000000000001';

DECLARE @left nvarchar(max) = (SELECT l.Headers FROM dbo.[Sample.Leased] AS l);
EXEC tSQLt.AssertEqualsString @Expected = N'b', @Actual = @left;
EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.Sample';
GO
CREATE OR ALTER PROCEDURE lease_end_lease.[test end_lease ends a lease that has expired and that nobody has returned]
AS
INSERT INTO dbo.[Sample.Leased] (token, Id, Headers, Body, RowVersion, owner, leased_at, due)
VALUES
(
    'aaaaaaaa-0000-0000-0000-000000000001', 'bbbbbbbb-0000-0000-0000-000000000005', N'a', 0x01, 5, N'h/1/1',
    SYSUTCDATETIME(), '20240101'
);

EXEC rowpost.[end_lease:Sample] @token = 'aaaaaaaa-0000-0000-0000-000000000001';

EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.[Sample.Leased]';
GO
CREATE OR ALTER PROCEDURE lease_end_lease.[test end_lease refuses a lease that is lost]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51035;

EXEC rowpost.[end_lease:Sample] @token = 'aaaaaaaa-0000-0000-0000-000000000001';
GO
CREATE OR ALTER PROCEDURE lease_end_lease.[test end_lease refuses NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51035;

EXEC rowpost.[end_lease:Sample] @token = NULL;
GO
CREATE OR ALTER PROCEDURE lease_end_lease.[test end_lease leaves the callers session as it was]
AS
INSERT INTO dbo.[Sample.Leased] (token, Id, Headers, Body, RowVersion, owner, leased_at, due)
VALUES
(
    'aaaaaaaa-0000-0000-0000-000000000001', 'bbbbbbbb-0000-0000-0000-000000000005', N'a', 0x01, 5, N'h/1/1',
    SYSUTCDATETIME(), DATEADD(HOUR, 1, SYSUTCDATETIME())
);
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[end_lease:Sample] @token = 'aaaaaaaa-0000-0000-0000-000000000001';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
