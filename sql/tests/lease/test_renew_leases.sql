SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'lease_renew_leases';
GO
CREATE OR ALTER PROCEDURE lease_renew_leases.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE lease_renew_leases.[test renew_leases renews those that exist and says their tokens]
AS
-- Babelfish: INSERT EXEC misses the rows of an OUTPUT clause
CREATE TABLE #renewed (token uniqueidentifier);
INSERT INTO dbo.[Sample.Leased] (token, Id, Headers, Body, RowVersion, owner, leased_at, due)
VALUES
(
    'aaaaaaaa-0000-0000-0000-000000000001', 'bbbbbbbb-0000-0000-0000-000000000005', N'a', 0x01, 5, N'h/1/1',
    SYSUTCDATETIME(), DATEADD(HOUR, -1, SYSUTCDATETIME())
);

INSERT INTO #renewed (token)
EXEC rowpost.[renew_leases:Sample]
    @leases = N'[{"token":"aaaaaaaa-0000-0000-0000-000000000001"},{"token":"aaaaaaaa-0000-0000-0000-000000000002"}]', @seconds = 600;

DECLARE @token nvarchar(36) = (SELECT CONVERT(nvarchar(36), r.token) FROM #renewed AS r);
DECLARE @later int = (SELECT COUNT(*) FROM dbo.[Sample.Leased] AS l WHERE l.due > DATEADD(SECOND, 590, SYSUTCDATETIME()));
EXEC tSQLt.AssertEqualsString @Expected = N'AAAAAAAA-0000-0000-0000-000000000001', @Actual = @token;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @later;
GO
CREATE OR ALTER PROCEDURE lease_renew_leases.[test renew_leases keeps progress that is not given again]
AS
INSERT INTO dbo.[Sample.Leased] (token, Id, Headers, Body, RowVersion, owner, leased_at, due)
VALUES
(
    'aaaaaaaa-0000-0000-0000-000000000001', 'bbbbbbbb-0000-0000-0000-000000000005', N'a', 0x01, 5, N'h/1/1',
    SYSUTCDATETIME(), DATEADD(HOUR, 1, SYSUTCDATETIME())
);

EXEC rowpost.[renew_leases:Sample] @leases = N'[{"token":"aaaaaaaa-0000-0000-0000-000000000001","percent":40,"text":"page 4"}]', @seconds = 60;
EXEC rowpost.[renew_leases:Sample] @leases = N'[{"token":"aaaaaaaa-0000-0000-0000-000000000001"}]', @seconds = 60;

DECLARE @kept int = (SELECT COUNT(*) FROM dbo.[Sample.Leased] AS l WHERE l.progress_percent = 40 AND l.progress_text = N'page 4');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @kept;
GO
CREATE OR ALTER PROCEDURE lease_renew_leases.[test renew_leases records nothing that is no progress]
AS
INSERT INTO dbo.[Sample.Leased] (token, Id, Headers, Body, RowVersion, owner, leased_at, due)
VALUES
(
    'aaaaaaaa-0000-0000-0000-000000000001', 'bbbbbbbb-0000-0000-0000-000000000005', N'a', 0x01, 5, N'h/1/1',
    SYSUTCDATETIME(), DATEADD(HOUR, 1, SYSUTCDATETIME())
);

EXEC rowpost.[renew_leases:Sample] @leases = N'[5,{"token":"x"},{"token":"aaaaaaaa-0000-0000-0000-000000000001","percent":101}]', @seconds = 60;

DECLARE @none int = (SELECT COUNT(*) FROM dbo.[Sample.Leased] AS l WHERE l.progress_percent IS NULL);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @none;
GO
CREATE OR ALTER PROCEDURE lease_renew_leases.[test renew_leases refuses a lease of no seconds]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.[renew_leases:Sample] @leases = N'[]', @seconds = 0;
GO
CREATE OR ALTER PROCEDURE lease_renew_leases.[test renew_leases refuses what is no array]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51033;

EXEC rowpost.[renew_leases:Sample] @leases = N'{}', @seconds = 60;
GO
CREATE OR ALTER PROCEDURE lease_renew_leases.[test renew_leases leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[renew_leases:Sample] @leases = N'[]', @seconds = 60;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
