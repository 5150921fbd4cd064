CREATE OR REPLACE FUNCTION rowpost.receive_messages(
    p_queue_name text,
    p_count integer,
    p_after_row_version bigint DEFAULT NULL
) RETURNS TABLE (id uuid, row_version bigint, expired boolean, headers text, body bytea)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Receives from a queue by name, for ad-hoc use.
Runs as the caller: the call needs the caller's own right to the queue's procedure.
Atomicity: one DELETE in the caller's transaction.
Locking:   as the queue's receive_messages.
Order:     as the queue's receive_messages.
*/
DECLARE
    v_queue_key CONSTANT text := rowpost._resolve_queue(p_queue_name);
BEGIN
    RETURN QUERY EXECUTE format('SELECT * FROM rowpost.%I($1, $2)', 'receive_messages:' || v_queue_key)
    USING p_count, p_after_row_version;
END
$rowpost$;
