SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'registry_renew_lease';
GO
CREATE OR ALTER PROCEDURE registry_renew_lease.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE registry_renew_lease.[test renew_lease refuses a lease of no seconds]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.renew_lease @queue_name = N'Sample', @seconds = 0;
GO
CREATE OR ALTER PROCEDURE registry_renew_lease.[test renew_lease names a queue that is not registered]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.renew_lease @queue_name = N'x''; DROP TABLE rowpost.queue; --', @seconds = 10;
GO
CREATE OR ALTER PROCEDURE registry_renew_lease.[test renew_lease keeps one lease a queue however often it is renewed]
AS
EXEC rowpost.renew_lease @queue_name = N'Sample', @seconds = 10;
EXEC rowpost.renew_lease @queue_name = N'Sample', @seconds = 20;

DECLARE @leases int = (SELECT COUNT(*) FROM rowpost.lease AS l WHERE l.queue_key = N'Sample');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @leases;
GO
CREATE OR ALTER PROCEDURE registry_renew_lease.[test renew_lease refuses a lease of more than a day]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.renew_lease @queue_name = N'Sample', @seconds = 86401;
GO
CREATE OR ALTER PROCEDURE registry_renew_lease.[test renew_lease lets the lease end the given seconds from now]
AS
EXEC rowpost.renew_lease @queue_name = N'Sample', @seconds = 600;

DECLARE @ends_in int = (SELECT DATEDIFF(SECOND, SYSUTCDATETIME(), l.ends_at) FROM rowpost.lease AS l WHERE l.queue_key = N'Sample');
DECLARE @right bit = CASE WHEN @ends_in BETWEEN 500 AND 600 THEN 1 ELSE 0 END;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE registry_renew_lease.[test renew_lease is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.renew_lease @queue_name = N'Sample', @seconds = 600;
ROLLBACK TRANSACTION before_it;

EXEC tSQLt.AssertEmptyTable @TableName = N'rowpost.lease';
GO
CREATE OR ALTER PROCEDURE registry_renew_lease.[test renew_lease leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.renew_lease @queue_name = N'Sample', @seconds = 10;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
