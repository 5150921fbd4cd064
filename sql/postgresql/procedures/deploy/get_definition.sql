CREATE OR REPLACE FUNCTION rowpost.get_definition(
    p_object_name text -- quoted, with its schema
) RETURNS TABLE (definition text)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Reads the text of a procedure as it lives in the server, for a review; no row where there is none, or none to be seen.
Atomicity: reads only.
Locking:   none that lasts.
*/
BEGIN
    RETURN QUERY
    SELECT pg_get_functiondef(p.oid)
    FROM pg_proc AS p
    WHERE p.oid = to_regproc(p_object_name) AND p.pronamespace = 'rowpost'::regnamespace;
END
$rowpost$;
