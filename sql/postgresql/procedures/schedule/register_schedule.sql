CREATE OR REPLACE FUNCTION rowpost.register_schedule(
    p_schedule_name text,
    p_queue_name text, -- whose supervisors send the messages
    p_destination text, -- the queue that gets the messages
    p_message_type text,
    p_zone text, -- the time zone of p_cron, for example Europe/Berlin
    p_missed text, -- what becomes of ticks that nobody sent in time: skip, once or all
    p_cron text DEFAULT NULL, -- five fields; null: p_interval_ms is given
    p_interval_ms bigint DEFAULT NULL -- milliseconds between two ticks, 1000 or more
) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Stores a schedule, or changes the one of that name. A new schedule, and one with other due times, begins with the next tick from now on.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.schedule.
Ticks that are done stay done: ticked_to never moves back, not even if the server's clock did.
*/
DECLARE
    v_queue_key text;
    v_now CONSTANT timestamp(3) := clock_timestamp() AT TIME ZONE 'UTC';
BEGIN
    IF length(p_schedule_name) > 150 OR length(p_destination) > 200 OR length(p_message_type) > 200
       OR length(p_cron) > 200 OR length(p_zone) > 100 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP034', MESSAGE =
            'The schedule cannot be stored: its name may have 150 characters, destination, type and cron 200 each, and the zone 100.';
    END IF;

    IF (p_cron IS NULL) = (p_interval_ms IS NULL) OR p_interval_ms < 1000 OR coalesce(p_missed, '') NOT IN ('skip', 'once', 'all') THEN
        RAISE EXCEPTION USING ERRCODE = 'RP037', MESSAGE =
            'A schedule has either a cron expression or an interval of 1000 milliseconds or more, and missed is skip, once or all.';
    END IF;

    v_queue_key := rowpost._resolve_queue(p_queue_name);

    INSERT INTO rowpost.schedule AS s (
        schedule_name, queue_key, destination, message_type, cron, interval_ms, zone, missed, ticked_to, is_paused, changed_by, changed_at
    )
    VALUES (
        p_schedule_name, v_queue_key, p_destination, p_message_type, p_cron, p_interval_ms, p_zone, p_missed, v_now, false, session_user, v_now
    )
    ON CONFLICT (schedule_name) DO UPDATE
    SET queue_key = excluded.queue_key,
        destination = excluded.destination,
        message_type = excluded.message_type,
        cron = excluded.cron,
        interval_ms = excluded.interval_ms,
        zone = excluded.zone,
        missed = excluded.missed,
        ticked_to = CASE
            WHEN (s.cron, s.interval_ms, s.zone) IS NOT DISTINCT FROM (excluded.cron, excluded.interval_ms, excluded.zone) THEN s.ticked_to
            ELSE greatest(s.ticked_to, v_now)
        END,
        next_due = CASE
            WHEN (s.cron, s.interval_ms, s.zone) IS NOT DISTINCT FROM (excluded.cron, excluded.interval_ms, excluded.zone) THEN s.next_due
        END;
END
$rowpost$;
