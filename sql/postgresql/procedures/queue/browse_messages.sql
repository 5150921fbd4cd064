CREATE OR REPLACE FUNCTION rowpost."browse_messages:{queue_key}"(
    p_count integer, -- 1 to 1000
    p_after_row_version bigint DEFAULT NULL -- only rows with a higher row version
) RETURNS TABLE (
    id uuid, row_version bigint, expired boolean, expires timestamp, headers text, body_bytes bigint
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Reads messages without their bodies, and without receiving them.
Atomicity: reads only.
Locking:   none; omits rows that receivers lock (see peek_queue).
Order:     by seq.
*/
DECLARE
    v_above CONSTANT bigint := coalesce(p_after_row_version, -9223372036854775808);
    v_now CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC';
    -- transactions that run now, as the 32 bits in xmax: those of the list, and all from v_next on
    v_snapshot CONSTANT pg_snapshot := pg_current_snapshot();
    v_next CONSTANT bigint := pg_snapshot_xmax(v_snapshot)::text::bigint & 4294967295;
    v_running CONSTANT bigint[] := ARRAY(
        SELECT s.xid::text::bigint & 4294967295 FROM pg_snapshot_xip(v_snapshot) AS s (xid));
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of messages to browse must be between 1 and 1000.';
    END IF;

    RETURN QUERY
    SELECT
        q.id,
        q.seq::bigint,
        coalesce(q.expires <= v_now, false),
        q.expires,
        q.headers,
        coalesce(octet_length(q.body), 0)::bigint
    FROM {queue_table} AS q
    WHERE q.seq > v_above
      AND (q.xmax = '0'::xid
           OR (q.xmax::text::bigint <> ALL (v_running) AND (q.xmax::text::bigint - v_next) & 4294967295 >= 2147483648))
    ORDER BY q.seq
    LIMIT p_count;
END
$rowpost$;
