CREATE OR REPLACE FUNCTION rowpost."drop_spool:{queue_key}"(
    p_owner text, -- names the stream: the unique id in its checkpoint
    p_upto bigint, -- the last number of a batch that the stream has committed
    p_release boolean DEFAULT NULL -- and release the queue for another stream, if the spool is empty now
) RETURNS TABLE (dropped bigint, remaining boolean)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Deletes spooled messages that their stream has stored durably.
Atomicity: in the caller's transaction.
Locking:   the spool's row; waits for move_to_spool.
*/
DECLARE
    v_dropped bigint;
    v_remaining boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM rowpost.spool AS s WHERE s.queue_key = '{queue_key}' AND s.owned_by = p_owner FOR UPDATE) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP030', MESSAGE = 'Nothing was deleted: the spool of this queue belongs to another stream.';
    END IF;

    DELETE FROM rowpost.spooled_message AS m WHERE m.queue_key = '{queue_key}' AND m.number <= p_upto;

    GET DIAGNOSTICS v_dropped = ROW_COUNT;
    v_remaining := EXISTS (SELECT FROM rowpost.spooled_message AS m WHERE m.queue_key = '{queue_key}');

    IF p_release AND NOT v_remaining THEN
        UPDATE rowpost.spool AS s SET confirmed = false WHERE s.queue_key = '{queue_key}';
    END IF;

    RETURN QUERY SELECT v_dropped, v_remaining;
END
$rowpost$;
