SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'registry_renew_ownership';
GO
CREATE OR ALTER PROCEDURE registry_renew_ownership.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE registry_renew_ownership.[test renew_ownership refuses an ownership of no seconds]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.renew_ownership @queue_name = N'Sample', @seconds = 0;
GO
CREATE OR ALTER PROCEDURE registry_renew_ownership.[test renew_ownership names a queue that is not registered]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.renew_ownership @queue_name = N'x''; DROP TABLE rowpost.queue; --', @seconds = 10;
GO
CREATE OR ALTER PROCEDURE registry_renew_ownership.[test renew_ownership keeps one row a queue however often it is renewed]
AS
EXEC rowpost.renew_ownership @queue_name = N'Sample', @seconds = 10;
EXEC rowpost.renew_ownership @queue_name = N'Sample', @seconds = 20;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.queue_ownership AS l WHERE l.queue_key = N'Sample');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE registry_renew_ownership.[test renew_ownership refuses an ownership of more than a day]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.renew_ownership @queue_name = N'Sample', @seconds = 86401;
GO
CREATE OR ALTER PROCEDURE registry_renew_ownership.[test renew_ownership lets the ownership end the given seconds from now]
AS
EXEC rowpost.renew_ownership @queue_name = N'Sample', @seconds = 600;

DECLARE @ends_in int = (SELECT DATEDIFF(SECOND, SYSUTCDATETIME(), l.ends_at) FROM rowpost.queue_ownership AS l WHERE l.queue_key = N'Sample');
DECLARE @right bit = CASE WHEN @ends_in BETWEEN 500 AND 600 THEN 1 ELSE 0 END;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE registry_renew_ownership.[test renew_ownership is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.renew_ownership @queue_name = N'Sample', @seconds = 600;
ROLLBACK TRANSACTION before_it;

EXEC tSQLt.AssertEmptyTable @TableName = N'rowpost.queue_ownership';
GO
CREATE OR ALTER PROCEDURE registry_renew_ownership.[test renew_ownership leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.renew_ownership @queue_name = N'Sample', @seconds = 10;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
