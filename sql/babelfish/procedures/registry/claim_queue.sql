SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.claim_queue
    @queue_name nvarchar(400)
AS
/*
Makes a session the only one of all that ask to receive from a queue; it stays so until it ends.
Atomicity: no transaction is needed and none is touched: the lock belongs to the session.
Locking:   an application lock that nobody waits for, released after the session's last transaction is rolled back.
Babelfish: a refused lock leaves a frame on the server's error stack, and the fifth of a session ends the server; an
error that is caught clears the stack.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @queue_key nvarchar(128);
EXEC rowpost._resolve_queue @queue_name = @queue_name, @queue_key = @queue_key OUTPUT;

DECLARE @lock_name nvarchar(255) = CONCAT(N'rowpost queue ', @queue_key);
DECLARE @claimed int;
EXEC @claimed = sys.sp_getapplock @Resource = @lock_name, @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 0;

IF @claimed < 0
BEGIN
    SET XACT_ABORT OFF;

    BEGIN TRY
        THROW 50000, N'refused', 1;
    END TRY
    BEGIN CATCH
        SET @claimed = -1;
    END CATCH;
END;

SELECT CAST(CASE WHEN @claimed >= 0 THEN 1 ELSE 0 END AS bit) AS claimed;
GO
