SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'pubsub__require_subscriber';
GO
CREATE OR ALTER PROCEDURE pubsub__require_subscriber.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE pubsub__require_subscriber.[test _require_subscriber lets the owner of the schema act for every queue]
AS
DECLARE @refused bit = 0;

BEGIN TRY
    EXEC rowpost._require_subscriber @queue_address = N'Sample';
    EXEC rowpost._require_subscriber @queue_address = N'Nowhere@[nowhere]';
END TRY
BEGIN CATCH
    SET @refused = 1;
END CATCH;

EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @refused;
GO
