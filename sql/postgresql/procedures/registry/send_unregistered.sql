CREATE OR REPLACE FUNCTION rowpost.send_unregistered(
    p_schema_name text,
    p_table_name text,
    p_headers text,
    p_body bytea DEFAULT NULL,
    p_id uuid DEFAULT NULL,
    p_time_to_be_received_ms bigint DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Sends to a queue table that is not registered, for example an unknown reply address.
Runs as the caller: the INSERT is dynamic SQL, which needs the caller's own right to the table. The server quotes the
names, the table must exist and have a queue's columns, and values are parameters.
Atomicity: one INSERT in the caller's transaction.
Locking:   only the new row.
*/
DECLARE
    v_name CONSTANT text := quote_ident(p_schema_name) || '.' || quote_ident(p_table_name);
    -- PostgreSQL cuts a name of more than 63 bytes, to the name of another table.
    v_table CONSTANT regclass :=
        CASE WHEN greatest(octet_length(p_schema_name), octet_length(p_table_name)) <= 63 THEN to_regclass(v_name) END;
BEGIN
    IF p_time_to_be_received_ms NOT BETWEEN 1 AND 3155760000000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP004', MESSAGE =
            'The time to be received must be between 1 millisecond and 100 years; leave it out for a message that never expires.';
    END IF;

    IF v_table IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'RP001', MESSAGE = format(
            'There is no queue table %s, or you may not see it.', v_name);
    END IF;

    IF 5 > (
        SELECT count(*)
        FROM pg_attribute AS a
        WHERE a.attrelid = v_table AND a.attnum > 0 AND NOT a.attisdropped
          AND a.attname IN ('id', 'expires', 'headers', 'body', 'seq')
    ) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP009', MESSAGE = format(
            'The table %s is not a queue: it needs the columns id, expires, headers, body and seq.', v_table);
    END IF;

    EXECUTE format(
        'INSERT INTO %I.%I (id, expires, headers, body)'
        ' VALUES ($1, (clock_timestamp() AT TIME ZONE ''UTC'') + $2 * interval ''1 millisecond'', $3, $4)',
        p_schema_name, p_table_name)
    USING coalesce(p_id, gen_random_uuid()), p_time_to_be_received_ms, p_headers, p_body;
END
$rowpost$;
