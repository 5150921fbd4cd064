SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.watch_schedules
    @queue_name nvarchar(800)
AS
/*
Returns the schedules that a queue's supervisors send, and the server's time, so that no host's clock decides what is due.
Atomicity: reads only.
Locking:   skips rows that others lock: a schedule that is being moved on is seen with the next look.
Order:     by name.
The caller must be allowed to receive from the queue, or be an operator.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

DECLARE @queue_key nvarchar(128);
DECLARE @now datetime2(3) = SYSUTCDATETIME();
EXEC rowpost._resolve_queue @queue_name = @queue_name, @queue_key = @queue_key OUTPUT;
EXEC rowpost._require_receiver @queue_key = @queue_key, @subject = @queue_name;

SELECT
    s.schedule_name,
    s.cron,
    s.interval_ms,
    s.zone,
    s.missed,
    s.ticked_to,
    s.next_due,
    s.requested_at,
    s.is_paused,
    @now AS measured_at
FROM rowpost.schedule AS s WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
WHERE s.queue_key = @queue_key
ORDER BY s.schedule_name;
GO
