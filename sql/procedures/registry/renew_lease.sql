SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.renew_lease
    @queue_name nvarchar(400),
    @seconds int -- from now, by this server's clock
AS
/*
Says that the process to which a queue belongs lives; when it no longer says so, check_queue names the queue.
Atomicity: in the caller's transaction.
Locking:   one key of the leases.
*/
SET NOCOUNT, XACT_ABORT ON;

IF @seconds IS NULL OR @seconds NOT BETWEEN 1 AND 86400
    THROW 51003, N'A lease lasts between 1 and 86400 seconds.', 1;

DECLARE @queue_key nvarchar(128);
EXEC rowpost._resolve_queue @queue_name = @queue_name, @queue_key = @queue_key OUTPUT;

UPDATE l
SET l.ends_at = DATEADD(SECOND, @seconds, SYSUTCDATETIME())
FROM rowpost.lease AS l WITH (UPDLOCK, HOLDLOCK)
WHERE l.queue_key = @queue_key;

IF @@ROWCOUNT = 0
    INSERT INTO rowpost.lease (queue_key, ends_at)
    VALUES (@queue_key, DATEADD(SECOND, @seconds, SYSUTCDATETIME()));
GO
