CREATE OR REPLACE FUNCTION rowpost."browse_delayed:{queue_key}"(
    p_count integer, -- 1 to 1000
    p_due_in_ms bigint DEFAULT NULL -- only messages that are due so many milliseconds from now, or later; null: all
) RETURNS TABLE (delayed_key text, due timestamp, headers text, body_bytes bigint)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $rowpost$
/*
Reads delayed messages without their bodies, and without moving them, the next ones first.
Atomicity: reads only.
Locking:   none.
Order:     by due time.
*/
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of messages to browse must be between 1 and 1000.';
    END IF;

    IF p_due_in_ms NOT BETWEEN -3155760000000 AND 3155760000000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP010', MESSAGE = 'The time from which on messages are browsed must be at most 100 years away.';
    END IF;

    RETURN QUERY
    SELECT
        d.id::text,
        d.due AT TIME ZONE 'UTC',
        d.headers,
        coalesce(length(d.body), 0)::bigint
    FROM {delayed_table} AS d
    WHERE d.due >= coalesce(clock_timestamp() + p_due_in_ms * interval '1 millisecond', '-infinity')
    ORDER BY d.due
    LIMIT p_count;
END
$rowpost$;
