CREATE OR REPLACE FUNCTION rowpost.list_saga_types() RETURNS TABLE (
    saga_name text, saga_key text, schema_name text, table_name text,
    correlation_name text, correlation_type text, transitional_name text, transitional_type text
)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Lists the types of sagas that have a table here.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by name.
*/
BEGIN
    RETURN QUERY
    SELECT
        s.saga_name, s.saga_key, s.schema_name, s.table_name,
        s.correlation_name, s.correlation_type, s.transitional_name, s.transitional_type
    FROM rowpost.saga AS s
    ORDER BY s.saga_name;
END
$rowpost$;
