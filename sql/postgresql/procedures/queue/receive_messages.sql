CREATE OR REPLACE FUNCTION rowpost."receive_messages:{queue_key}"(
    p_count integer, -- how many at most, 1 to 500
    p_after_row_version bigint DEFAULT NULL -- only rows with a higher row version; null: from the start of the queue
) RETURNS TABLE (id uuid, row_version bigint, expired boolean, headers text, body bytea)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan -- a parameter in LIMIT would be planned again at every call
SET enable_seqscan = off -- a plan that was made for an empty queue must not scan a full one
AS $rowpost$
/*
Removes and returns the oldest messages that no other session has locked.
Atomicity: one DELETE in the caller's transaction; a rollback returns the messages to their places.
Locking:   skips rows that others lock (SKIP LOCKED) and never waits; locks only the rows that it returns.
Order:     the oldest by seq. Between several receivers of a queue the order is approximate. The rows of a call are
           returned in no order: sort them by row_version if the order matters. A sort here would copy headers and
           bodies two more times, which takes a quarter of the call.
Expired messages are returned with expired = true; the receiver drops them.
*/
DECLARE
    v_above CONSTANT bigint := coalesce(p_after_row_version, -9223372036854775808);
    v_now CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC';
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 500 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of messages to receive must be between 1 and 500.';
    END IF;

    RETURN QUERY
    DELETE FROM {queue_table} AS q
    -- An array is evaluated once. A join could lock and return more rows than LIMIT allows.
    WHERE q.ctid = ANY (ARRAY(
        SELECT c.ctid
        FROM {queue_table} AS c
        WHERE c.seq > v_above
        ORDER BY c.seq
        LIMIT p_count
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING q.id, q.seq::bigint, coalesce(q.expires <= v_now, false), q.headers, q.body;
END
$rowpost$;
