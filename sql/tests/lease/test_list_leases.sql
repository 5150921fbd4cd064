SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'lease_list_leases';
GO
CREATE OR ALTER PROCEDURE lease_list_leases.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE lease_list_leases.[test list_leases shows who holds what and how far it is]
AS
CREATE TABLE #listed
(
    id uniqueidentifier, row_version bigint, owner nvarchar(200), leased_at datetime2(3), due datetime2(3),
    progress_percent int, progress_text nvarchar(400), headers nvarchar(max), body_bytes bigint
);
INSERT INTO dbo.[Sample.Leased] (token, Id, Headers, Body, RowVersion, owner, leased_at, due)
VALUES
(
    'aaaaaaaa-0000-0000-0000-000000000001', 'bbbbbbbb-0000-0000-0000-000000000005', N'a', 0x01, 5, N'h/1/1',
    SYSUTCDATETIME(), DATEADD(HOUR, 1, SYSUTCDATETIME())
);
EXEC rowpost.[renew_leases:Sample] @leases = N'[{"token":"aaaaaaaa-0000-0000-0000-000000000001","percent":40,"text":"page 4"}]', @seconds = 60;

INSERT INTO #listed (id, row_version, owner, leased_at, due, progress_percent, progress_text, headers, body_bytes)
EXEC rowpost.[list_leases:Sample] @count = 10;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM #listed AS r
    WHERE r.row_version = 5 AND r.owner = N'h/1/1' AND r.leased_at < r.due AND r.progress_percent = 40
      AND r.progress_text = N'page 4' AND r.headers = N'a' AND r.body_bytes = 1
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE lease_list_leases.[test list_leases refuses a count above a thousand]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[list_leases:Sample] @count = 1001;
GO
CREATE OR ALTER PROCEDURE lease_list_leases.[test list_leases leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[list_leases:Sample] @count = 10;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
