SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'registry_acquire_queue';
GO
CREATE OR ALTER PROCEDURE registry_acquire_queue.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE registry_acquire_queue.[test acquire_queue is granted to a session that asks alone]
AS
EXEC rowpost.acquire_queue @queue_name = N'Sample';

DECLARE @mode nvarchar(32) = APPLOCK_MODE(N'public', N'rowpost queue Sample', N'Session');
EXEC tSQLt.AssertEqualsString @Expected = N'Exclusive', @Actual = @mode;
GO
CREATE OR ALTER PROCEDURE registry_acquire_queue.[test acquire_queue refuses a queue that nobody registered]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.acquire_queue @queue_name = N'Nowhere';
GO
CREATE OR ALTER PROCEDURE registry_acquire_queue.[test acquire_queue refuses a name of NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.acquire_queue @queue_name = NULL;
GO
CREATE OR ALTER PROCEDURE registry_acquire_queue.[test acquire_queue leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.acquire_queue @queue_name = N'Sample';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
