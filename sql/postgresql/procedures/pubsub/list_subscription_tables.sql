CREATE OR REPLACE FUNCTION rowpost.list_subscription_tables() RETURNS TABLE (
    table_key text, display_name text, catalog_name text, schema_name text, table_name text
)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Lists the tables of subscriptions other than the default one.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by key.
*/
BEGIN
    RETURN QUERY
    SELECT t.table_key, t.display_name, t.catalog_name, t.schema_name, t.table_name
    FROM rowpost.subscription_table AS t
    ORDER BY t.table_key;
END
$rowpost$;
