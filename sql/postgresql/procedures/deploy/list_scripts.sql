CREATE OR REPLACE FUNCTION rowpost.list_scripts() RETURNS TABLE (
    script_name text, script_kind text, script_hash text, object_kind text, object_name text,
    recorded_fingerprint text, living_fingerprint text, applied_at timestamp, applied_by text
)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Reads the journal, with the current fingerprint of each object.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by script.
*/
BEGIN
    RETURN QUERY
    SELECT
        j.script_name, j.script_kind, j.script_hash, j.object_kind, j.object_name,
        j.object_fingerprint,
        rowpost._object_fingerprint(j.object_kind, j.object_name),
        j.applied_at::timestamp, j.applied_by
    FROM rowpost.journal AS j
    ORDER BY j.script_name;
END
$rowpost$;
