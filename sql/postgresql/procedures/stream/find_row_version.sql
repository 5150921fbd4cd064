CREATE OR REPLACE FUNCTION rowpost."find_row_version:{queue_key}"(
    p_above bigint, -- only messages with a higher row version
    p_upto bigint, -- and not above this one
    p_count integer -- which of them, from 1
) RETURNS TABLE (row_version bigint)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Returns the row version of the message at a place above another row version, so that a stream ends a batch there.
Row versions have gaps: a batch that ended so many row versions further might have no message.
Atomicity: reads only.
Locking:   none; rows that receivers have locked are counted too, until the receivers commit.
Order:     from the lowest row version.
*/
BEGIN
    IF p_count IS NULL OR p_count < 1 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of messages must be at least 1.';
    END IF;

    RETURN QUERY
    SELECT (
        SELECT q.seq::bigint FROM {queue_table} AS q WHERE q.seq > p_above AND q.seq <= p_upto ORDER BY q.seq OFFSET p_count - 1 LIMIT 1
    );
END
$rowpost$;
