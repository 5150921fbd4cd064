CREATE OR REPLACE FUNCTION rowpost.get_version() RETURNS TABLE (
    schema_version integer, tool_version text, applied_at timestamp, engine_version text
)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Returns which schema is deployed, by which release, on which engine.
Atomicity: reads only.
Locking:   none that lasts.
*/
BEGIN
    RETURN QUERY
    SELECT v.schema_version, v.tool_version, v.applied_at::timestamp, 'PostgreSQL ' || current_setting('server_version')
    FROM rowpost.version AS v
    ORDER BY v.schema_version DESC, v.applied_at DESC
    LIMIT 1;
END
$rowpost$;
