CREATE OR REPLACE FUNCTION rowpost."find_row_version:{queue_key}"(
    p_above bigint, -- only messages with a higher row version
    p_upto bigint, -- and not above this one
    p_count integer, -- which of them, from 1
    p_bytes bigint DEFAULT NULL -- and not more headers and bodies up to it, unless it is the first
) RETURNS TABLE (row_version bigint)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Returns the row version of the message at a place above another row version, so that a stream ends a batch there.
Row versions have gaps: a batch that ended so many row versions further might have no message. Bodies have sizes: a batch of so
many messages might have any number of bytes.
Atomicity: reads only.
Locking:   none; rows that receivers have locked are counted too, until the receivers commit.
Order:     from the lowest row version.
*/
DECLARE
    v_over bigint;
BEGIN
    IF p_count IS NULL OR p_count < 1 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of messages must be at least 1.';
    END IF;

    IF p_bytes IS NOT NULL THEN
        -- The first message that the bytes leave out. The frame of rows lets LIMIT end the scan there. octet_length reads the length of a
        -- body that is stored outside of the row, and not the body; the sum of two of them is not above 2^31.
        SELECT summed.seq INTO v_over
        FROM (
            SELECT q.seq, sum(octet_length(q.headers) + coalesce(octet_length(q.body), 0)) OVER (ORDER BY q.seq ROWS UNBOUNDED PRECEDING) AS total
            FROM {queue_table} AS q
            WHERE q.seq > p_above AND q.seq <= p_upto
            ORDER BY q.seq
            LIMIT p_count
        ) AS summed
        WHERE summed.total > p_bytes
        ORDER BY summed.seq
        LIMIT 1;
    END IF;

    IF v_over IS NOT NULL THEN
        RETURN QUERY
        SELECT coalesce(
            (SELECT q.seq::bigint FROM {queue_table} AS q WHERE q.seq > p_above AND q.seq < v_over ORDER BY q.seq DESC LIMIT 1), v_over
        );
        RETURN;
    END IF;

    RETURN QUERY
    SELECT (
        SELECT q.seq::bigint FROM {queue_table} AS q WHERE q.seq > p_above AND q.seq <= p_upto ORDER BY q.seq OFFSET p_count - 1 LIMIT 1
    );
END
$rowpost$;
