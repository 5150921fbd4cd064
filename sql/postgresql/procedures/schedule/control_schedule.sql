CREATE OR REPLACE FUNCTION rowpost.control_schedule(
    p_schedule_name text,
    p_is_paused boolean DEFAULT NULL, -- whether nothing is sent; null: as before
    p_run_now boolean DEFAULT NULL, -- request a tick for now; null as false
    p_reason text DEFAULT NULL -- for those who read it, up to 400 characters
) RETURNS TABLE (queue_name text)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Pauses or resumes a schedule in the supervisors of all hosts, or requests a tick for now, and returns the queue that sends its messages.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.schedule; waits for a supervisor that sends its message.
What was due during a pause is not sent: a schedule that is resumed begins with the next tick. A request that is not taken yet stays one.
*/
DECLARE
    v_now CONSTANT timestamp(3) := clock_timestamp() AT TIME ZONE 'UTC';
    v_queue_key text;
BEGIN
    UPDATE rowpost.schedule AS s
    SET ticked_to = CASE WHEN NOT p_is_paused AND s.is_paused THEN greatest(s.ticked_to, v_now) ELSE s.ticked_to END,
        next_due = CASE WHEN NOT p_is_paused AND s.is_paused THEN NULL ELSE s.next_due END,
        is_paused = coalesce(p_is_paused, s.is_paused),
        requested_at = CASE WHEN p_run_now THEN coalesce(s.requested_at, v_now) ELSE s.requested_at END,
        reason = CASE WHEN p_is_paused IS NULL THEN s.reason ELSE left(p_reason, 400) END,
        changed_by = session_user,
        changed_at = v_now
    WHERE s.schedule_name = p_schedule_name
    RETURNING s.queue_key INTO v_queue_key;

    IF v_queue_key IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'RP036', MESSAGE = format(
            'No schedule named ''%s'' is stored in this database. rowpost schedules list shows those that are.', left(p_schedule_name, 150));
    END IF;

    RETURN QUERY SELECT coalesce((SELECT q.queue_name FROM rowpost.queue AS q WHERE q.queue_key = v_queue_key), v_queue_key);
END
$rowpost$;
