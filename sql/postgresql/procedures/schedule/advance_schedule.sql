CREATE OR REPLACE FUNCTION rowpost.advance_schedule(
    p_queue_name text,
    p_schedule_name text,
    p_seen_ms bigint, -- ticked_to as watch_schedules returned it, in milliseconds since 1970-01-01, UTC
    p_ticked_to_ms bigint, -- the last tick that is done then; p_seen_ms: none is, and only p_next_due_ms is stored
    p_next_due_ms bigint DEFAULT NULL, -- the next tick after that; null: there is none
    p_sent_due_ms bigint DEFAULT NULL -- the last tick with a message; null: none is sent
) RETURNS TABLE (advanced boolean)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Moves a schedule on over its ticks up to a time, if nobody else has, and returns whether it did. The caller then sends their messages.
Atomicity: in the caller's transaction, which also sends the messages: both commit, or neither does.
Locking:   one row of rowpost.schedule. One that others lock is not moved: whoever moves it on sends its messages.
The row is compared with what the caller has seen (ticked_to), so that of several supervisors one sends a tick. A tick that is not due by
the server's clock, and a paused schedule, are not moved on. The caller must be allowed to receive from the queue, or be an operator.
*/
DECLARE
    v_queue_key CONSTANT text := rowpost._resolve_queue(p_queue_name);
    v_now CONSTANT timestamp(3) := clock_timestamp() AT TIME ZONE 'UTC';
    v_day CONSTANT timestamp := '1970-01-01';
    v_seen CONSTANT timestamp(3) := v_day + p_seen_ms * interval '1 millisecond';
    v_ticked_to CONSTANT timestamp(3) := v_day + p_ticked_to_ms * interval '1 millisecond';
BEGIN
    IF p_ticked_to_ms < p_seen_ms OR p_next_due_ms <= p_ticked_to_ms OR p_sent_due_ms > p_ticked_to_ms OR p_sent_due_ms <= p_seen_ms THEN
        RAISE EXCEPTION USING ERRCODE = 'RP037', MESSAGE =
            'A schedule only moves on: the tick that is done, and the next one, must be later than those before.';
    END IF;

    PERFORM rowpost._require_receiver(v_queue_key, p_queue_name);

    UPDATE rowpost.schedule AS s
    SET ticked_to = v_ticked_to,
        next_due = v_day + p_next_due_ms * interval '1 millisecond',
        sent_due = coalesce(v_day + p_sent_due_ms * interval '1 millisecond', s.sent_due)
    WHERE s.ctid = ANY (ARRAY(
        SELECT c.ctid
        FROM rowpost.schedule AS c
        WHERE c.schedule_name = p_schedule_name
          AND c.queue_key = v_queue_key
          AND c.ticked_to = v_seen
          AND (v_ticked_to = v_seen OR v_ticked_to <= v_now)
          AND NOT c.is_paused
        FOR UPDATE SKIP LOCKED
    ));

    RETURN QUERY SELECT FOUND;
END
$rowpost$;
