CREATE OR REPLACE FUNCTION rowpost."watch_queue:{queue_key}"(
    p_count integer, -- stop counting at this number, 1 to 10000, so that the cost is independent of the queue's depth
    p_wake_up_ttl_ms integer DEFAULT NULL, -- if no message waits, senders notify the caller for so long; null or 0: they do not
    p_supervisor_id uuid DEFAULT NULL -- who asks, for its part of a limit that supervisors share; null: the whole limit
) RETURNS TABLE (waiting integer, next_due_ms bigint, is_paused boolean, worker_limit integer, reason text, changed_by text)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $rowpost$
/*
Returns about how many messages wait, when the next delayed one is due, and what operators have set for the queue.
Stores or withdraws a wake-up request, which senders read.
Atomicity: reads only. The wake-up request is the value of a sequence, the time until which it holds. It takes effect
           at once, also if the transaction rolls back, and writes no row: a change of it is one record of write-ahead log.
Locking:   none.
Order:     from the head of the queue, and of the index on due times.
The registry says whether the queue has a delayed table.
A limit that supervisors share is divided among those that reported within 30 seconds, and the asking one. A part may be 0.
The wake-up request is stored before counting, so that a sender which commits later sees it. A supervisor that polls
withdraws it. If the waiting supervisor stops, the request expires.
*/
DECLARE
    v_waiters CONSTANT regclass := to_regclass('rowpost."waiters:{queue_key}"');
    v_now CONSTANT bigint := extract(epoch FROM clock_timestamp()) * 1000;
    v_until CONSTANT bigint := coalesce(pg_sequence_last_value(v_waiters), 1);
    v_waiting integer;
    v_next_due_ms bigint;
    v_delayed boolean;
    v_control rowpost.queue_control;
BEGIN
    IF p_wake_up_ttl_ms > 0 THEN
        IF v_until < v_now + p_wake_up_ttl_ms / 2 THEN
            PERFORM setval(v_waiters, v_now + p_wake_up_ttl_ms);
        END IF;
    ELSIF v_until > 1 THEN
        PERFORM setval(v_waiters, 1);
    END IF;

    SELECT p.waiting INTO v_waiting FROM rowpost."peek_queue:{queue_key}"(p_count) AS p;

    IF v_waiting > 0 AND p_wake_up_ttl_ms > 0 THEN
        PERFORM setval(v_waiters, 1);
    END IF;

    SELECT r.delayed, c.queue_key, coalesce(c.is_paused, false), c.worker_limit, c.shared, c.reason, c.changed_by
    INTO v_delayed, v_control.queue_key, v_control.is_paused, v_control.worker_limit, v_control.shared, v_control.reason, v_control.changed_by
    FROM rowpost.queue AS r
    LEFT JOIN rowpost.queue_control AS c ON c.queue_key = r.queue_key
    WHERE r.queue_key = '{queue_key}';

    IF v_control.shared AND p_supervisor_id IS NOT NULL THEN
        SELECT
            v_control.worker_limit / (count(*) + 1)
            + CASE WHEN count(*) FILTER (WHERE q.supervisor_id < p_supervisor_id) < v_control.worker_limit % (count(*) + 1) THEN 1 ELSE 0 END
        INTO v_control.worker_limit
        FROM rowpost.supervised_queue AS q
        JOIN rowpost.supervisor AS s ON s.supervisor_id = q.supervisor_id
        WHERE q.queue_key = '{queue_key}'
          AND q.supervisor_id <> p_supervisor_id
          AND s.seen_at > clock_timestamp() AT TIME ZONE 'UTC' - interval '30 seconds';
    END IF;

    IF v_delayed THEN
        SELECT
            CASE
                WHEN d.due <= clock_timestamp() THEN 0
                WHEN d.due < '10000-01-01' THEN greatest(0, ceil(extract(epoch FROM d.due - clock_timestamp()) * 1000))
            END
        INTO v_next_due_ms -- null for a time after the year 9999: infinity is no number of milliseconds
        FROM {delayed_table} AS d
        ORDER BY d.due
        LIMIT 1;
    END IF;

    RETURN QUERY
    SELECT v_waiting, v_next_due_ms, coalesce(v_control.is_paused, false), v_control.worker_limit, v_control.reason::text, v_control.changed_by;
END
$rowpost$;
