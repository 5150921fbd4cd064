CREATE OR REPLACE FUNCTION rowpost."peek_queue:{queue_key}"(
    p_count integer, -- stop counting at this number, 1 to 10000, so that the cost is independent of the queue's depth
    p_after_row_version bigint DEFAULT NULL -- count only rows with a higher row version
) RETURNS TABLE (waiting integer)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Returns about how many messages wait, up to a given number.
Atomicity: reads only: no row lock, no transaction id, no write-ahead log.
Locking:   none. A row that a receiver has locked has the receiver's transaction in xmax and is not counted while that
           transaction runs. (The rows of a receiver inside a savepoint are counted.)
Order:     from the head of the queue.
*/
DECLARE
    v_above CONSTANT bigint := coalesce(p_after_row_version, -9223372036854775808);
    -- transactions that run now, as the 32 bits in xmax: those of the list, and all from v_next on
    v_snapshot CONSTANT pg_snapshot := pg_current_snapshot();
    v_next CONSTANT bigint := pg_snapshot_xmax(v_snapshot)::text::bigint & 4294967295;
    v_running CONSTANT bigint[] := ARRAY(
        SELECT s.xid::text::bigint & 4294967295 FROM pg_snapshot_xip(v_snapshot) AS s (xid));
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of messages to count must be between 1 and 10000.';
    END IF;

    RETURN QUERY
    SELECT count(*)::integer
    FROM (
        SELECT
        FROM {queue_table} AS q
        WHERE q.seq > v_above
          AND (q.xmax = '0'::xid
               OR (q.xmax::text::bigint <> ALL (v_running) AND (q.xmax::text::bigint - v_next) & 4294967295 >= 2147483648))
        ORDER BY q.seq
        LIMIT p_count
    ) AS head;
END
$rowpost$;
