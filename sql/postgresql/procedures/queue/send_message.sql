CREATE OR REPLACE FUNCTION rowpost."send_message:{queue_key}"(
    p_headers text, -- JSON object of strings, or '' for none
    p_body bytea DEFAULT NULL,
    p_id uuid DEFAULT NULL, -- the row's id; a new one when null
    p_time_to_be_received_ms bigint DEFAULT NULL -- milliseconds until the message expires, by this server's clock
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Stores one message at the end of the queue.
Atomicity: one INSERT in the caller's transaction.
Locking:   only the new row; if a supervisor waits for messages, also the lock of NOTIFY while the transaction commits.
Order:     by seq, which the table assigns.
*/
BEGIN
    IF p_time_to_be_received_ms NOT BETWEEN 1 AND 3155760000000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP004', MESSAGE =
            'The time to be received must be between 1 millisecond and 100 years; leave it out for a message that never expires.';
    END IF;

    INSERT INTO {queue_table} (id, expires, headers, body)
    VALUES (
        coalesce(p_id, gen_random_uuid()),
        (clock_timestamp() AT TIME ZONE 'UTC') + p_time_to_be_received_ms * interval '1 millisecond',
        p_headers,
        p_body
    );

    {notify_waiters}
END
$rowpost$;
