CREATE OR REPLACE FUNCTION rowpost.find_handled(p_endpoint text, p_message_id text) RETURNS TABLE (operations text, age_ms bigint)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET lock_timeout = '10s'
AS $rowpost$
/*
Returns whether an endpoint has handled a message, and the operations of the handler if they are not sent yet.
Atomicity: in the caller's transaction.
Locking:   operations that are not sent yet are locked until the caller's transaction ends, so that only one session
           sends them. Waits 10 s at most.
*/
DECLARE
    v_handled_at timestamp;
    v_operations text;
BEGIN
    IF p_endpoint IS NULL OR length(p_endpoint) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP023', MESSAGE = 'The endpoint of an outbox must have 1 to 200 characters.';
    END IF;

    IF p_message_id IS NULL OR length(p_message_id) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP022', MESSAGE = 'The message id must have 1 to 200 characters to be stored in an outbox.';
    END IF;

    SELECT o.handled_at INTO v_handled_at
    FROM rowpost.outbox AS o
    WHERE o.endpoint = p_endpoint AND o.message_id = p_message_id;

    IF NOT FOUND THEN
        RETURN;
    END IF;

    SELECT p.operations INTO v_operations
    FROM rowpost.outbox_operations AS p
    WHERE p.endpoint = p_endpoint AND p.message_id = p_message_id
    FOR UPDATE;

    RETURN QUERY
    SELECT v_operations, greatest(0, extract(epoch FROM clock_timestamp() AT TIME ZONE 'UTC' - v_handled_at) * 1000)::bigint;
END
$rowpost$;
