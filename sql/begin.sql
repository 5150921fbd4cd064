SET ANSI_NULLS, QUOTED_IDENTIFIER, XACT_ABORT, NOCOUNT ON;
GO
-- One deployment at a time: a second one waits here until the first one commits or ends.
BEGIN TRANSACTION;
DECLARE @granted int = 0;
-- If lock.sql has run, the session holds the lock already.
IF APPLOCK_MODE(N'public', N'rowpost deployment', N'Session') = N'NoLock'
    EXEC @granted = sys.sp_getapplock @Resource = N'rowpost deployment', @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = -1;
IF @granted < 0
    THROW 51012, N'The lock of deployments was refused: the wait for another deployment was cancelled, or ended in a deadlock. Run it again.', 1;
GO
