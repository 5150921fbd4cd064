CREATE OR REPLACE FUNCTION rowpost."move_due_messages:{queue_key}"(
    p_count integer -- how many at most, 1 to 500
) RETURNS TABLE (moved integer, forwards integer, next_due_ms bigint)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Moves due messages to the queue, and returns when the next one is due.
A message of an NServiceBus endpoint with the header ForwardDestination stays for receive_due_messages. forwards counts
these among the next @count due messages, so that a call reads few rows, independent of how many are due.
Atomicity: in the caller's transaction.
Locking:   one mover at a time per queue, elected by an advisory lock until the transaction ends; another caller gets
           moved = null at once. Rows that others lock are skipped.
Order:     by due time.
*/
DECLARE
    v_now CONSTANT timestamptz := clock_timestamp();
    v_ids CONSTANT text := left(gen_random_uuid()::text, 24); -- one random number for all, as in send_messages
    v_moved integer;
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 500 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of messages to move must be between 1 and 500.';
    END IF;

    IF pg_try_advisory_xact_lock(hashtextextended('rowpost mover {queue_key}', 0)) THEN
        v_moved := 0;
    END IF;

    -- an INSERT of no row would notify supervisors, if the queue's table has the trigger of create_trigger.sql
    IF v_moved = 0 AND EXISTS (SELECT FROM {delayed_table} AS d WHERE d.due <= v_now) THEN
        WITH removed AS (
            DELETE FROM {delayed_table} AS d
            WHERE d.ctid = ANY (ARRAY(
                SELECT h.ctid
                FROM (
                    SELECT c.ctid, c.headers
                    FROM {delayed_table} AS c
                    WHERE c.due <= v_now
                    ORDER BY c.due
                    LIMIT p_count
                    FOR UPDATE SKIP LOCKED
                ) AS h
                WHERE h.headers NOT LIKE '%"NServiceBus.SqlServer.ForwardDestination"%'
            ))
            RETURNING d.headers, d.body, d.due
        )
        INSERT INTO {queue_table} (id, headers, body)
        SELECT (v_ids || to_hex(281474976710656 - row_number() OVER (ORDER BY r.due)))::uuid, r.headers, r.body
        FROM removed AS r
        ORDER BY r.due;

        GET DIAGNOSTICS v_moved = ROW_COUNT;

        IF v_moved > 0 THEN
            {notify_waiters}
        END IF;
    END IF;

    RETURN QUERY
    SELECT
        v_moved,
        (
            SELECT count(*)::integer
            FROM (
                SELECT d.headers FROM {delayed_table} AS d WHERE d.due <= v_now ORDER BY d.due LIMIT p_count
            ) AS f
            WHERE f.headers LIKE '%"NServiceBus.SqlServer.ForwardDestination"%'
        ),
        (
            -- no reader needs to know of a time after the year 9999, and infinity is no number of milliseconds
            SELECT
                CASE
                    WHEN n.due <= v_now THEN 0
                    WHEN n.due < '10000-01-01' THEN ceil(extract(epoch FROM n.due - v_now) * 1000)::bigint
                END
            FROM {delayed_table} AS n
            ORDER BY n.due
            LIMIT 1
        );
END
$rowpost$;
