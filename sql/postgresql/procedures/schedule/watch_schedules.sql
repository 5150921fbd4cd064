CREATE OR REPLACE FUNCTION rowpost.watch_schedules(p_queue_name text) RETURNS TABLE (
    schedule_name text, cron text, interval_ms bigint, zone text, missed text, ticked_to timestamp, next_due timestamp,
    requested_at timestamp, is_paused boolean, measured_at timestamp
)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Returns the schedules that a queue's supervisors send, and the server's time, so that no host's clock decides what is due.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by name.
The caller must be allowed to receive from the queue, or be an operator.
*/
DECLARE
    v_queue_key CONSTANT text := rowpost._resolve_queue(p_queue_name);
    v_now CONSTANT timestamp(3) := clock_timestamp() AT TIME ZONE 'UTC';
BEGIN
    PERFORM rowpost._require_receiver(v_queue_key, p_queue_name);

    RETURN QUERY
    SELECT
        s.schedule_name::text, s.cron::text, s.interval_ms, s.zone::text, s.missed::text, s.ticked_to, s.next_due, s.requested_at, s.is_paused, v_now
    FROM rowpost.schedule AS s
    WHERE s.queue_key = v_queue_key
    ORDER BY s.schedule_name COLLATE "C";
END
$rowpost$;
