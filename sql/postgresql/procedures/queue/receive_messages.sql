CREATE OR REPLACE FUNCTION rowpost."receive_messages:{queue_key}"(
    p_count integer, -- how many at most, 1 to 500
    p_anchor bigint DEFAULT NULL -- only rows with a higher row version; null looks from the start
) RETURNS TABLE (id uuid, row_version bigint, expired boolean, headers text, body bytea)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan -- a parameter in LIMIT would be planned anew at every call
SET enable_seqscan = off -- a plan made while the queue was empty must not scan it when it is full
AS $rowpost$
/*
Removes and returns the oldest messages that nobody else holds.
Atomicity: one DELETE in the caller's transaction; a rollback puts the messages back in their places.
Locking:   steps over rows that others hold (SKIP LOCKED) and never waits; locks only the rows that it returns.
Order:     the oldest by seq; several receivers share the queue, so that across them the order is approximate.
           Rows come as they lie in the table: who needs their order sorts them by row_version. A sort here would copy
           headers and bodies twice more, a quarter of the whole call.
Expired messages are returned with expired = true, for the receiver to drop.
*/
DECLARE
    v_above CONSTANT bigint := coalesce(p_anchor, -9223372036854775808);
    v_now CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC';
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 500 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of messages to receive must be between 1 and 500.';
    END IF;

    RETURN QUERY
    DELETE FROM {queue_table} AS q
    -- an array is evaluated once; a join could lock and return more rows than LIMIT says
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
