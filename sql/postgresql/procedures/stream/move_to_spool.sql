CREATE OR REPLACE FUNCTION rowpost."move_to_spool:{queue_key}"(
    p_owner text, -- names the stream: the unique id in its checkpoint
    p_count integer, -- how many at most, 1 to 4000
    p_upto bigint DEFAULT NULL, -- only messages up to this row version
    p_take_over boolean DEFAULT NULL -- also take over another stream's spool, with the messages in it
) RETURNS TABLE (moved integer, spooled_to bigint)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Moves the oldest messages that nobody has locked from the queue to the spool of one stream.
Their numbers increase in the order in which they become visible, so that they are safe as offsets. Row versions are not.
Atomicity: one DELETE and INSERT in the caller's transaction.
Locking:   skips rows that others lock (SKIP LOCKED). Waits for another move of the same queue, so that one session at a
           time assigns numbers.
Order:     by seq.
*/
DECLARE
    v_owner text;
    v_confirmed boolean;
    v_moved integer;
BEGIN
    IF length(p_owner) > 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP034', MESSAGE = 'Nothing was moved: the owner of a spool may have at most 200 characters.';
    END IF;

    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 4000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of messages to move must be between 1 and 4000.';
    END IF;

    INSERT INTO rowpost.spool (queue_key, owned_by, confirmed, taken_at)
    VALUES ('{queue_key}', p_owner, false, clock_timestamp() AT TIME ZONE 'UTC')
    ON CONFLICT DO NOTHING;

    SELECT s.owned_by, s.confirmed INTO v_owner, v_confirmed FROM rowpost.spool AS s WHERE s.queue_key = '{queue_key}' FOR UPDATE;

    IF v_owner <> p_owner THEN
        -- A stream that never confirmed has logged no batch, so that no stream continues with it.
        IF v_confirmed AND NOT coalesce(p_take_over, false) THEN
            RAISE EXCEPTION USING ERRCODE = 'RP030', MESSAGE =
                'Another stream drains this queue, or has stopped and can continue: it has its own checkpoint.',
                HINT = 'Run that stream, or take over its spool (option takeOver) if it does not continue.';
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
