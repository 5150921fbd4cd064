CREATE OR REPLACE FUNCTION rowpost.record_dispatch(p_endpoint text, p_message_id text) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '10s'
AS $rowpost$
/*
Records in the queue's database that the operations of a handled message are sent; called in the same transaction.
Atomicity: in the caller's transaction, with what is sent.
Locking:   the new row. Waits for a session that sends the same operations, 10 s at most.
*/
BEGIN
    IF p_endpoint IS NULL OR length(p_endpoint) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP023', MESSAGE = 'The endpoint of an outbox must have 1 to 200 characters.';
    END IF;

    IF length(p_message_id) > 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP022', MESSAGE = 'The message id must have 1 to 200 characters to be stored in an outbox.';
    END IF;

    PERFORM rowpost._require_receiver((SELECT q.queue_key FROM rowpost.queue AS q WHERE q.queue_name = p_endpoint), p_endpoint);

    INSERT INTO rowpost.dispatch (endpoint, message_id, dispatched_at)
    VALUES (p_endpoint, p_message_id, clock_timestamp() AT TIME ZONE 'UTC')
    ON CONFLICT DO NOTHING;

    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'RP021', MESSAGE = 'The operations cannot be sent: they were sent before.';
    END IF;
END
$rowpost$;
