CREATE OR REPLACE FUNCTION rowpost.register_saga(
    p_saga_key text,
    p_saga_name text,
    p_schema_name text,
    p_table_name text,
    p_correlation_name text,
    p_correlation_type text, -- string, integer, uuid or timestamp
    p_transitional_name text DEFAULT NULL,
    p_transitional_type text DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Registers a type of saga, or updates its entry.
Atomicity: in the caller's transaction.
Locking:   the registry of sagas, until the caller commits; only deployments call it.
*/
DECLARE
    v_queue text;
BEGIN
    IF length(p_saga_name) > 400 OR length(p_saga_key) > 128 OR length(p_schema_name) > 128 OR length(p_table_name) > 128
       OR length(p_correlation_name) > 128 OR length(p_transitional_name) > 128
       OR length(p_correlation_type) > 10 OR length(p_transitional_type) > 10 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP034', MESSAGE =
            'The saga cannot be registered: its name may have at most 400 characters, its key, schema, table, columns 128 each, and types 10.';
    END IF;

    SELECT q.queue_name INTO v_queue
    FROM rowpost.queue AS q
    WHERE q.schema_name = p_schema_name
      AND q.table_name = p_table_name
      AND q.catalog_name IS NULL;

    IF v_queue IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'RP005', MESSAGE = format(
            'The table of the saga ''%s'' is that of the queue ''%s''. Choose another name.', p_saga_name, v_queue);
    END IF;

    INSERT INTO rowpost.saga AS s
        (saga_key, saga_name, schema_name, table_name, correlation_name, correlation_type, transitional_name, transitional_type)
    VALUES
        (p_saga_key, p_saga_name, p_schema_name, p_table_name, p_correlation_name, p_correlation_type, p_transitional_name, p_transitional_type)
    ON CONFLICT (saga_key) DO UPDATE
    SET correlation_name = excluded.correlation_name,
        correlation_type = excluded.correlation_type,
        transitional_name = excluded.transitional_name,
        transitional_type = excluded.transitional_type;
END
$rowpost$;
