CREATE OR REPLACE FUNCTION rowpost."purge_expired:{queue_key}"(
    p_count integer -- how many at most, 1 to 4000; call until fewer were purged
) RETURNS TABLE (purged integer)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Removes expired messages that nobody has locked, and returns how many.
Atomicity: one DELETE in the caller's transaction.
Locking:   skips rows that receivers lock and never waits.
Order:     the longest expired first, by the index on expires.
*/
DECLARE
    v_purged integer;
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 4000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of messages to purge must be between 1 and 4000.';
    END IF;

    DELETE FROM {queue_table} AS q
    WHERE q.ctid = ANY (ARRAY(
        SELECT c.ctid
        FROM {queue_table} AS c
        WHERE c.expires <= clock_timestamp() AT TIME ZONE 'UTC'
        ORDER BY c.expires
        LIMIT p_count
        FOR UPDATE SKIP LOCKED
    ));

    GET DIAGNOSTICS v_purged = ROW_COUNT;
    RETURN QUERY SELECT v_purged;
END
$rowpost$;
