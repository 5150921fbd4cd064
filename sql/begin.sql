SET ANSI_NULLS, QUOTED_IDENTIFIER, XACT_ABORT, NOCOUNT ON;
GO
-- One deployment at a time: a second one waits here until the first has committed or gone.
BEGIN TRANSACTION;
EXEC sys.sp_getapplock @Resource = N'rowpost deployment', @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = -1;
GO
