CREATE OR REPLACE FUNCTION rowpost.record_handled(p_endpoint text, p_message_id text) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '10s'
AS $rowpost$
/*
Records that an endpoint has handled a message or is about to; the record is valid when the caller commits.
Atomicity: in the caller's transaction.
Locking:   the new row. Waits for a session that handles the same message, 10 s at most.
*/
BEGIN
    IF p_endpoint IS NULL OR length(p_endpoint) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP023', MESSAGE = 'The endpoint of an outbox must have 1 to 200 characters.';
    END IF;

    IF p_message_id IS NULL OR length(p_message_id) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP022', MESSAGE = 'The message id must have 1 to 200 characters to be stored in an outbox.';
    END IF;

    INSERT INTO rowpost.outbox (endpoint, message_id, handled_at)
    VALUES (p_endpoint, p_message_id, clock_timestamp() AT TIME ZONE 'UTC')
    ON CONFLICT DO NOTHING;

    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'RP020', MESSAGE = 'The message cannot be recorded: the endpoint has handled it before.';
    END IF;
END
$rowpost$;
