CREATE OR REPLACE FUNCTION rowpost.send_to_subscriber(
    p_schema_name text,
    p_table_name text,
    p_headers text,
    p_body bytea DEFAULT NULL,
    p_time_to_be_received_ms bigint DEFAULT NULL,
    p_otherwise_queue text DEFAULT NULL, -- a registered queue that gets the copy if the table is gone
    p_otherwise_headers text DEFAULT NULL -- the headers that it has there
) RETURNS TABLE (stored boolean)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Sends a copy of an event to a subscriber that is not registered, and returns whether its table was there. If it is gone,
the copy goes to the other queue.
Runs as the caller, who needs the right to insert into that table, and to send to the other queue.
Atomicity: one INSERT in the caller's transaction.
Locking:   only the new row.
*/
DECLARE
    -- PostgreSQL cuts a name of more than 63 bytes, to the name of another table.
    v_table CONSTANT regclass := CASE
        WHEN greatest(octet_length(p_schema_name), octet_length(p_table_name)) <= 63 THEN to_regclass(format('%I.%I', p_schema_name, p_table_name))
    END;
BEGIN
    IF v_table IS NULL AND p_otherwise_queue IS NOT NULL THEN
        PERFORM rowpost.send_message(p_otherwise_queue, p_otherwise_headers, p_body);
        RETURN QUERY SELECT false;
        RETURN;
    END IF;

    PERFORM rowpost.send_unregistered(
        p_schema_name, p_table_name, p_headers, p_body, p_time_to_be_received_ms => p_time_to_be_received_ms);
    RETURN QUERY SELECT true;
END
$rowpost$;
