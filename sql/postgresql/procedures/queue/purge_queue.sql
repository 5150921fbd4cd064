CREATE OR REPLACE FUNCTION rowpost."purge_queue:{queue_key}"(
    p_count integer -- how many at most, 1 to 4000; call until fewer were purged
) RETURNS TABLE (purged integer)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Removes the oldest messages that nobody has locked, returns how many, and records the last row version for streams.
Atomicity: one DELETE in the caller's transaction, with the record for streams.
Locking:   skips rows that receivers lock; waits only for another purge of the same queue.
Order:     by seq.
*/
DECLARE
    v_purged integer;
    v_last bigint;
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 4000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of messages to purge must be between 1 and 4000.';
    END IF;

    WITH purged AS (
        DELETE FROM {queue_table} AS q
        WHERE q.ctid = ANY (ARRAY(
            SELECT c.ctid FROM {queue_table} AS c ORDER BY c.seq LIMIT p_count FOR UPDATE SKIP LOCKED
        ))
        RETURNING q.seq
    )
    SELECT count(*), max(p.seq) INTO v_purged, v_last FROM purged AS p;

    -- a stream that has not read these messages yet must not treat the queue as empty
    IF v_purged > 0 THEN
        INSERT INTO rowpost.purge (queue_key, row_version, purged_at)
        VALUES ('{queue_key}', v_last, clock_timestamp() AT TIME ZONE 'UTC')
        ON CONFLICT (queue_key) DO UPDATE
        SET row_version = excluded.row_version, purged_at = excluded.purged_at;
    END IF;

    RETURN QUERY SELECT v_purged;
END
$rowpost$;
