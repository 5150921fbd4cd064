CREATE OR REPLACE FUNCTION rowpost.send_message(
    p_queue_name text,
    p_headers text,
    p_body bytea DEFAULT NULL,
    p_id uuid DEFAULT NULL,
    p_time_to_be_received_ms bigint DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Sends to a queue by name, for ad-hoc use and for systems that send by plain SQL.
Runs as the caller: the call needs the caller's own right to the queue's procedure.
Atomicity: one INSERT in the caller's transaction.
Locking:   only the new row.
*/
DECLARE
    v_queue_key CONSTANT text := rowpost._resolve_queue(p_queue_name);
BEGIN
    EXECUTE format('SELECT rowpost.%I($1, $2, $3, $4)', 'send_message:' || v_queue_key)
    USING p_headers, p_body, p_id, p_time_to_be_received_ms;
END
$rowpost$;
