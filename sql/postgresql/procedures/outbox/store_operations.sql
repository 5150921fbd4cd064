CREATE OR REPLACE FUNCTION rowpost.store_operations(
    p_endpoint text,
    p_message_id text,
    p_operations text -- JSON array, see outbox.py
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Stores the operations of a handled message until they are sent.
Atomicity: in the caller's transaction, which records the message as well.
Locking:   the new row.
*/
BEGIN
    IF length(p_endpoint) > 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP023', MESSAGE = 'The endpoint of an outbox must have 1 to 200 characters.';
    END IF;

    IF length(p_message_id) > 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP022', MESSAGE = 'The message id must have 1 to 200 characters to be stored in an outbox.';
    END IF;

    INSERT INTO rowpost.outbox_operations (endpoint, message_id, operations)
    VALUES (p_endpoint, p_message_id, p_operations);
END
$rowpost$;
