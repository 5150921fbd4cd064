SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.renew_ownership
    @queue_name nvarchar(800),
    @seconds int -- from now, by this server's clock
AS
/*
Renews the queue ownership of a process; if the ownership ends, check_queue reports the queue.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.queue_ownership.
*/
SET NOCOUNT, XACT_ABORT ON;

IF @seconds IS NULL OR @seconds NOT BETWEEN 1 AND 86400
    THROW 51003, N'The queue ownership cannot be renewed: its duration must be between 1 and 86400 seconds.', 1;

DECLARE @queue_key nvarchar(128);
EXEC rowpost._resolve_queue @queue_name = @queue_name, @queue_key = @queue_key OUTPUT;
EXEC rowpost._require_receiver @queue_key = @queue_key, @subject = @queue_name;

UPDATE l
SET l.ends_at = DATEADD(SECOND, @seconds, SYSUTCDATETIME())
FROM rowpost.queue_ownership AS l WITH (UPDLOCK, HOLDLOCK)
WHERE l.queue_key = @queue_key;

IF @@ROWCOUNT = 0
    INSERT INTO rowpost.queue_ownership (queue_key, ends_at)
    VALUES (@queue_key, DATEADD(SECOND, @seconds, SYSUTCDATETIME()));
GO
