CREATE OR REPLACE FUNCTION rowpost."watch_queue:{queue_key}"(
    p_count integer, -- stop counting here, 1 to 10000: the cost is bounded at any depth
    p_asleep_ms integer DEFAULT NULL -- where nothing waits, the caller sleeps: senders wake it, for so long; null or 0: it is awake
) RETURNS TABLE (waiting integer, next_due_ms bigint)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $rowpost$
/*
Says about how many messages wait, up to p_count, and when the next delayed one is due.
Tells senders whether somebody sleeps who wants to be woken.
Atomicity: reads only. What senders are told stands in a sequence, until when: it holds at once, whoever rolls back, and
           writes no row.
Locking:   none.
Order:     from the head of the queue, and of the index on due times.
Whether there is a delayed table, the registry says.
The word is given before the count: a message that commits later finds it. It is taken back by whoever is awake and
looks, and runs out by itself when a sleeper dies.
*/
DECLARE
    v_sleepers CONSTANT regclass := to_regclass('rowpost."sleepers:{queue_key}"');
    v_now CONSTANT bigint := extract(epoch FROM clock_timestamp()) * 1000;
    v_until CONSTANT bigint := coalesce(pg_sequence_last_value(v_sleepers), 1);
    v_waiting integer;
    v_next_due_ms bigint;
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

    IF EXISTS (SELECT FROM rowpost.queue AS r WHERE r.queue_key = '{queue_key}' AND r.delayed) THEN
        SELECT greatest(0, ceil(extract(epoch FROM d.due - clock_timestamp()) * 1000)) INTO v_next_due_ms
        FROM {delayed_table} AS d
        ORDER BY d.due
        LIMIT 1;
    END IF;

    RETURN QUERY SELECT v_waiting, v_next_due_ms;
END
$rowpost$;
