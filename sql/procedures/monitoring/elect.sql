SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.elect
    @duty nvarchar(400) -- what only one session at a time does, for example maintenance
AS
/*
Elects the first session that asks for a duty; it stays elected until it ends.
Atomicity: needs no transaction and changes none: the lock belongs to the session.
Locking:   one application lock a duty; nobody waits for it.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(CONCAT(@duty, N'.')) > 201
    THROW 51034, N'Nobody can be elected: the name of a duty may have at most 200 characters.', 1;

DECLARE @lock_name nvarchar(255) = CONCAT(N'rowpost duty ', @duty);
DECLARE @elected int;

EXEC @elected = sys.sp_getapplock @Resource = @lock_name, @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 0;

SELECT CAST(CASE WHEN @elected >= 0 THEN 1 ELSE 0 END AS bit) AS elected;
GO
