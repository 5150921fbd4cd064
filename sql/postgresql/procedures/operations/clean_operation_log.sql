CREATE OR REPLACE FUNCTION rowpost.clean_operation_log(
    p_retention_seconds integer, -- only operations that began before
    p_count integer -- how many at most, 1 to 4000; call until fewer were removed
) RETURNS TABLE (removed integer)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Deletes operations that began before the retention time, but none that a process still executes.
Atomicity: one DELETE in the caller's transaction, of fewer rows than the threshold of SQL Server's lock escalation.
Locking:   skips locked rows and never waits.
Order:     the oldest first, by the index on started_at.
*/
DECLARE
    v_now CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC';
    v_removed integer;
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 4000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of rows to remove must be between 1 and 4000.';
    END IF;

    IF p_retention_seconds IS NULL OR p_retention_seconds < 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The retention time must be 0 seconds or more.';
    END IF;

    DELETE FROM rowpost.operation_log AS d
    WHERE d.operation_id = ANY (ARRAY(
        SELECT a.operation_id
        FROM rowpost.operation_log AS a
        WHERE a.started_at < v_now - p_retention_seconds * interval '1 second'
          AND (a.operation_state <> 'running' OR a.changed_at < v_now - interval '30 seconds')
        ORDER BY a.started_at
        LIMIT p_count
        FOR UPDATE OF a SKIP LOCKED
    ));

    GET DIAGNOSTICS v_removed = ROW_COUNT;
    RETURN QUERY SELECT v_removed;
END
$rowpost$;
