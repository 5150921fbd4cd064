CREATE OR REPLACE FUNCTION rowpost."move_to_spool:{queue_key}"(
    p_owner text, -- names the stream: its checkpoint's own mark
    p_count integer, -- how many at most, 1 to 10000
    p_upto bigint DEFAULT NULL, -- none with a higher row version
    p_take_over boolean DEFAULT NULL -- another stream's spool as well, with the messages that it left there
) RETURNS TABLE (moved integer, spooled_to bigint)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Takes the oldest messages that nobody holds out of the queue and stores them for one stream.
Their numbers grow in the order in which they become visible: safe as a stream's offsets, which row versions are not.
Atomicity: one DELETE and INSERT in the caller's transaction.
Locking:   steps over rows that others hold (SKIP LOCKED). Waits for another move of the same queue, so that numbers are
           drawn by one at a time.
Order:     by seq.
*/
DECLARE
    v_owner text;
    v_confirmed boolean;
    v_moved integer;
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of messages to move must be between 1 and 10000.';
    END IF;

    INSERT INTO rowpost.spool (queue_key, owned_by, confirmed, taken_at)
    VALUES ('{queue_key}', p_owner, false, clock_timestamp() AT TIME ZONE 'UTC')
    ON CONFLICT DO NOTHING;

    SELECT s.owned_by, s.confirmed INTO v_owner, v_confirmed FROM rowpost.spool AS s WHERE s.queue_key = '{queue_key}' FOR UPDATE;

    IF v_owner <> p_owner THEN
        -- one that was never confirmed has logged no batch: nobody can come back for it
        IF v_confirmed AND NOT coalesce(p_take_over, false) THEN
            RAISE EXCEPTION USING ERRCODE = 'RP030', MESSAGE =
                'Another stream drains this queue, or has stopped and will want to go on: it has a checkpoint of its own.',
                HINT = 'Run that one, or take its spool over (option takeOver) if it never comes back.';
        END IF;

        UPDATE rowpost.spool AS s
        SET owned_by = p_owner, confirmed = false, taken_at = clock_timestamp() AT TIME ZONE 'UTC'
        WHERE s.queue_key = '{queue_key}';
    END IF;

    WITH removed AS (
        DELETE FROM {queue_table} AS q
        WHERE q.ctid = ANY (ARRAY(
            SELECT c.ctid
            FROM {queue_table} AS c
            WHERE c.seq <= coalesce(p_upto, 9223372036854775807)
            ORDER BY c.seq
            LIMIT p_count
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING q.id, q.expires, q.headers, q.body, q.seq
    )
    INSERT INTO rowpost.spooled_message (queue_key, id, recoverable, expires, headers, body, row_version)
    SELECT '{queue_key}', r.id, true, r.expires, r.headers, r.body, r.seq
    FROM removed AS r
    ORDER BY r.seq;

    GET DIAGNOSTICS v_moved = ROW_COUNT;

    RETURN QUERY
    SELECT v_moved, coalesce(max(m.number), 0) FROM rowpost.spooled_message AS m WHERE m.queue_key = '{queue_key}';
END
$rowpost$;
