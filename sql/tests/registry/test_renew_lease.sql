SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'registry_renew_lease';
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
