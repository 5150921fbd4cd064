SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'registry__require_receiver';
GO
CREATE OR ALTER PROCEDURE registry__require_receiver.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE registry__require_receiver.[test _require_receiver lets the owner of the schema act for every queue]
AS
DECLARE @refused bit = 0;

BEGIN TRY
    EXEC rowpost._require_receiver @queue_key = N'Sample', @subject = N'Sample';
    EXEC rowpost._require_receiver @queue_key = N'Nowhere', @subject = N'Nowhere';
    EXEC rowpost._require_receiver @queue_key = NULL, @subject = N'Nowhere';
END TRY
BEGIN CATCH
    SET @refused = 1;
END CATCH;

EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @refused;
GO
CREATE OR ALTER PROCEDURE registry__require_receiver.[test _require_receiver leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost._require_receiver @queue_key = N'Sample', @subject = N'Sample';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
