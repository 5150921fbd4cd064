SET ANSI_NULLS, QUOTED_IDENTIFIER, XACT_ABORT, NOCOUNT ON;
GO
-- The lock of begin.sql for a deployment of several transactions. It lasts until unlock.sql or the end of the session.
DECLARE @granted int;
EXEC @granted = sys.sp_getapplock @Resource = N'rowpost deployment', @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = -1;
IF @granted < 0
    THROW 51012, N'The lock of deployments was refused: the wait for another deployment was cancelled, or ended in a deadlock. Run it again.', 1;
GO
