CREATE OR REPLACE FUNCTION rowpost.list_schedules() RETURNS TABLE (
    schedule_name text, queue_name text, destination text, message_type text, cron text, interval_ms bigint, zone text, missed text,
    next_due timestamp, sent_due timestamp, late_ms bigint, requested_at timestamp, is_paused boolean, reason text,
    changed_by text, changed_at timestamp, measured_at timestamp
)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Lists the schedules with their due times, and how late the next tick is by the server's clock.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by name.
*/
DECLARE
    v_now CONSTANT timestamp(3) := clock_timestamp() AT TIME ZONE 'UTC';
BEGIN
    RETURN QUERY
    SELECT
        s.schedule_name::text,
        coalesce(q.queue_name, s.queue_key),
        s.destination::text,
        s.message_type::text,
        s.cron::text,
        s.interval_ms,
        s.zone::text,
        s.missed::text,
        s.next_due,
        s.sent_due,
        CASE WHEN s.is_paused OR s.next_due > v_now THEN 0 ELSE (extract(epoch FROM v_now - s.next_due) * 1000)::bigint END,
        s.requested_at,
        s.is_paused,
        s.reason::text,
        s.changed_by,
        s.changed_at,
        v_now
    FROM rowpost.schedule AS s
    LEFT JOIN rowpost.queue AS q ON q.queue_key = s.queue_key
    ORDER BY s.schedule_name COLLATE "C";
END
$rowpost$;
