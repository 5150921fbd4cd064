CREATE OR REPLACE FUNCTION rowpost.register_subscription_table(
    p_table_key text,
    p_display_name text, -- its address in the short form
    p_catalog_name text, -- always NULL
    p_schema_name text,
    p_table_name text
) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Registers a table of subscriptions; does nothing if it is registered.
Atomicity: in the caller's transaction.
Locking:   the registry of these tables, until the caller commits; only deployments call it.
*/
BEGIN
    IF length(p_table_key) > 128 OR length(p_display_name) > 400 OR length(p_catalog_name) > 128
       OR length(p_schema_name) > 128 OR length(p_table_name) > 128 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP011', MESSAGE =
            'The table cannot be registered: its name may have at most 400 characters, its key, schema, table and catalog 128 each.';
    END IF;

    INSERT INTO rowpost.subscription_table AS t (table_key, display_name, catalog_name, schema_name, table_name)
    VALUES (p_table_key, p_display_name, p_catalog_name, p_schema_name, p_table_name)
    ON CONFLICT (table_key) DO NOTHING;
END
$rowpost$;
