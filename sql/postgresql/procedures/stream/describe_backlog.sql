CREATE OR REPLACE FUNCTION rowpost."describe_backlog:{queue_key}"(
    p_above bigint, -- only messages with a higher row version
    p_count integer -- stop counting at this number, 1 to 1000000
) RETURNS TABLE (messages integer, first_headers text)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Returns how many messages a stream has not read yet, up to a given number, and the headers of the oldest one.
Atomicity: reads only.
Locking:   none; rows that receivers have locked are counted too, until the receivers commit.
Order:     from the lowest row version.
*/
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 1000000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of messages to count must be between 1 and 1000000.';
    END IF;

    RETURN QUERY
    SELECT
        (
            SELECT count(*)::integer
            FROM (SELECT FROM {queue_table} AS q WHERE q.seq > p_above ORDER BY q.seq LIMIT p_count) AS head
        ),
        (SELECT q.headers FROM {queue_table} AS q WHERE q.seq > p_above ORDER BY q.seq LIMIT 1);
END
$rowpost$;
