SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.elect_cleaner
AS
/*
Elects one session of all that ask to clean this database's outbox; it stays elected until it ends.
Atomicity: no transaction is needed and none is touched: the lock belongs to the session.
Locking:   an application lock that nobody waits for.
Babelfish: a refused lock leaves a frame on the server's error stack, and the fifth of a session ends the server; an
error that is caught clears the stack.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @elected int;

EXEC @elected = sys.sp_getapplock @Resource = N'rowpost outbox', @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 0;

IF @elected < 0
BEGIN
    SET XACT_ABORT OFF;

    BEGIN TRY
        THROW 50000, N'refused', 1;
    END TRY
    BEGIN CATCH
        SET @elected = -1;
    END CATCH;
END;

SELECT CAST(CASE WHEN @elected >= 0 THEN 1 ELSE 0 END AS bit) AS elected;
GO
