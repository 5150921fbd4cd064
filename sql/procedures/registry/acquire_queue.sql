SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.acquire_queue
    @queue_name nvarchar(800)
AS
/*
Makes this session the single active consumer of a queue until it ends, if no other session is.
Atomicity: needs no transaction and changes none: the lock belongs to the session.
Locking:   an application lock; nobody waits for it. It is released after the session's last transaction is rolled back.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @queue_key nvarchar(128);
EXEC rowpost._resolve_queue @queue_name = @queue_name, @queue_key = @queue_key OUTPUT;
EXEC rowpost._require_receiver @queue_key = @queue_key, @subject = @queue_name;

DECLARE @lock_name nvarchar(255) = CONCAT(N'rowpost queue ', @queue_key);
DECLARE @acquired int;
EXEC @acquired = sys.sp_getapplock @Resource = @lock_name, @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 0;

SELECT CAST(CASE WHEN @acquired >= 0 THEN 1 ELSE 0 END AS bit) AS acquired;
GO
