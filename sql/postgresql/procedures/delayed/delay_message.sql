CREATE OR REPLACE FUNCTION rowpost."delay_message:{queue_key}"(
    p_headers text, -- JSON object of strings, or '' for none
    p_body bytea,
    p_delay_ms bigint -- milliseconds until the message is due, by this server's clock; negative: due now
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Stores one message that is moved to the queue when it is due.
Atomicity: one INSERT in the caller's transaction.
Locking:   only the new row.
Order:     by due time.
*/
BEGIN
    IF p_delay_ms IS NULL OR p_delay_ms NOT BETWEEN -3155760000000 AND 3155760000000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP010', MESSAGE = 'The delay must be given, and be at most 100 years.';
    END IF;

    INSERT INTO {delayed_table} (headers, body, due)
    VALUES (p_headers, p_body, clock_timestamp() + p_delay_ms * interval '1 millisecond');
END
$rowpost$;
