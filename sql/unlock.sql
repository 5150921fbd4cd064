-- The end of a deployment of several transactions.
EXEC sys.sp_releaseapplock @Resource = N'rowpost deployment', @LockOwner = 'Session';
GO
