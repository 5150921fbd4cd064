SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'registry__resolve_queue';
GO
CREATE OR ALTER PROCEDURE registry__resolve_queue.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE registry__resolve_queue.[test _resolve_queue finds the key of a registered queue]
AS
DECLARE @queue_key nvarchar(128);

EXEC rowpost._resolve_queue @queue_name = N'Sample', @queue_key = @queue_key OUTPUT;

EXEC tSQLt.AssertEqualsString @Expected = N'Sample', @Actual = @queue_key;
GO
CREATE OR ALTER PROCEDURE registry__resolve_queue.[test _resolve_queue refuses a queue that is not registered]
AS
DECLARE @queue_key nvarchar(128);
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost._resolve_queue @queue_name = N'Nowhere', @queue_key = @queue_key OUTPUT;
GO
CREATE OR ALTER PROCEDURE registry__resolve_queue.[test _resolve_queue does not take a key that it is handed]
AS
DECLARE @queue_key nvarchar(128) = N'Sample';
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost._resolve_queue @queue_name = N'Nowhere', @queue_key = @queue_key OUTPUT;
GO
CREATE OR ALTER PROCEDURE registry__resolve_queue.[test _resolve_queue takes a name that looks like SQL as a name]
AS
DECLARE @queue_key nvarchar(128);
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost._resolve_queue @queue_name = N''' OR 1 = 1 --', @queue_key = @queue_key OUTPUT;
GO
