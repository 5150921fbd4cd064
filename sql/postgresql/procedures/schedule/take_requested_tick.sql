CREATE OR REPLACE FUNCTION rowpost.take_requested_tick(
    p_queue_name text,
    p_schedule_name text,
    p_requested_at_ms bigint -- as watch_schedules returned it, in milliseconds since 1970-01-01, UTC
) RETURNS TABLE (taken boolean)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Takes the tick that an operator has requested for now, if nobody else has, and returns whether it did. The caller then sends its message.
Atomicity: in the caller's transaction, which also sends the message: both commit, or neither does.
Locking:   one row of rowpost.schedule. One that others lock is not changed.
The due times of the schedule stay as they are. A paused schedule sends it too. The caller must be allowed to receive from the queue, or be
an operator.
*/
DECLARE
    v_queue_key CONSTANT text := rowpost._resolve_queue(p_queue_name);
BEGIN
    PERFORM rowpost._require_receiver(v_queue_key, p_queue_name);

    UPDATE rowpost.schedule AS s
    SET requested_at = NULL
    WHERE s.ctid = ANY (ARRAY(
        SELECT c.ctid
        FROM rowpost.schedule AS c
        WHERE c.schedule_name = p_schedule_name
          AND c.queue_key = v_queue_key
          AND c.requested_at = timestamp '1970-01-01' + p_requested_at_ms * interval '1 millisecond'
        FOR UPDATE SKIP LOCKED
    ));

    RETURN QUERY SELECT FOUND;
END
$rowpost$;
