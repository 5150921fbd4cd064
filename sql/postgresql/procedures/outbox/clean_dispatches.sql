CREATE OR REPLACE FUNCTION rowpost.clean_dispatches(
    p_retention_seconds integer, -- only rows that are older
    p_count integer -- how many at most, 1 to 4000; call until fewer were removed
) RETURNS TABLE (removed integer)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Deletes dispatches that are older than the retention time. They remain only if a worker stopped before it deleted them.
Atomicity: one DELETE in the caller's transaction.
Locking:   skips locked rows and never waits.
Order:     the oldest first, by the index on dispatched_at.
*/
DECLARE
    v_removed integer;
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 4000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of rows to remove must be between 1 and 4000.';
    END IF;

    IF p_retention_seconds IS NULL OR p_retention_seconds < 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The retention time must be 0 seconds or more.';
    END IF;

    DELETE FROM rowpost.dispatch AS d
    WHERE d.ctid = ANY (ARRAY(
        SELECT c.ctid
        FROM rowpost.dispatch AS c
        WHERE c.dispatched_at < clock_timestamp() AT TIME ZONE 'UTC' - p_retention_seconds * interval '1 second'
        ORDER BY c.dispatched_at
        LIMIT p_count
        FOR UPDATE SKIP LOCKED
    ));

    GET DIAGNOSTICS v_removed = ROW_COUNT;
    RETURN QUERY SELECT v_removed;
END
$rowpost$;
