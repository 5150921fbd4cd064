CREATE OR REPLACE FUNCTION rowpost."watch_queue:{queue_key}"(
    p_count integer, -- stop counting here, 1 to 10000: the cost is bounded at any depth
    p_asleep_ms integer DEFAULT NULL -- where nothing waits, the caller sleeps: senders wake it, for so long; null or 0: it is awake
) RETURNS TABLE (waiting integer)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Says about how many messages wait, up to p_count; and tells senders whether somebody sleeps who wants to be woken.
Atomicity: reads only. What senders are told stands in a sequence, until when: it holds at once, whoever rolls back, and
           writes no row.
Locking:   none.
Order:     from the head of the queue.
The word is given before the count: a message that commits later finds it. It is taken back by whoever is awake and
looks, and runs out by itself when a sleeper dies.
*/
DECLARE
    v_sleepers CONSTANT regclass := to_regclass('rowpost."sleepers:{queue_key}"');
    v_now CONSTANT bigint := extract(epoch FROM clock_timestamp()) * 1000;
    v_until CONSTANT bigint := coalesce(pg_sequence_last_value(v_sleepers), 1);
    v_waiting integer;
BEGIN
    IF p_asleep_ms > 0 THEN
        IF v_until < v_now + p_asleep_ms / 2 THEN
            PERFORM setval(v_sleepers, v_now + p_asleep_ms);
        END IF;
    ELSIF v_until > 1 THEN
        PERFORM setval(v_sleepers, 1);
    END IF;

    SELECT p.waiting INTO v_waiting FROM rowpost."peek_queue:{queue_key}"(p_count) AS p;

    IF v_waiting > 0 AND p_asleep_ms > 0 THEN
        PERFORM setval(v_sleepers, 1);
    END IF;

    RETURN QUERY SELECT v_waiting;
END
$rowpost$;
