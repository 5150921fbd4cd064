SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_schedules
AS
/*
Lists the schedules with their due times, and how late the next tick is by the server's clock.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by name.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @now datetime2(3) = SYSUTCDATETIME();

SELECT
    s.schedule_name,
    ISNULL(q.queue_name, s.queue_key) AS queue_name,
    s.destination,
    s.message_type,
    s.cron,
    s.interval_ms,
    s.zone,
    s.missed,
    s.next_due,
    s.sent_due,
    CASE WHEN s.is_paused = 1 OR s.next_due > @now THEN 0 ELSE DATEDIFF_BIG(MILLISECOND, s.next_due, @now) END AS late_ms,
    s.requested_at,
    s.is_paused,
    s.reason,
    s.changed_by,
    s.changed_at,
    @now AS measured_at
FROM rowpost.schedule AS s
LEFT JOIN rowpost.queue AS q ON s.queue_key = q.queue_key
ORDER BY s.schedule_name;
GO
