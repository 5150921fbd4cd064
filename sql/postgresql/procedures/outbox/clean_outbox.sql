CREATE OR REPLACE FUNCTION rowpost.clean_outbox(
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
Deletes records of messages that were handled before the retention time, but none with operations that are not sent yet.
Atomicity: one DELETE in the caller's transaction, of fewer rows than the threshold of SQL Server's lock escalation.
Locking:   skips locked records, and never waits.
Order:     the oldest first, by the index on handled_at.
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

    DELETE FROM rowpost.outbox AS d
    WHERE d.ctid = ANY (ARRAY(
        SELECT o.ctid
        FROM rowpost.outbox AS o
        WHERE o.handled_at < clock_timestamp() AT TIME ZONE 'UTC' - p_retention_seconds * interval '1 second'
          AND NOT EXISTS (
              SELECT
              FROM rowpost.outbox_operations AS p
              WHERE p.endpoint = o.endpoint AND p.message_id = o.message_id
          )
        ORDER BY o.handled_at
        LIMIT p_count
        FOR UPDATE OF o SKIP LOCKED
    ));

    GET DIAGNOSTICS v_removed = ROW_COUNT;
    RETURN QUERY SELECT v_removed;
END
$rowpost$;
