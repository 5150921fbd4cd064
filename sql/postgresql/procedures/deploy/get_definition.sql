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
    -- to_regproc would raise an error for what is no name, before PostgreSQL 16
    WHERE p.pronamespace = 'rowpost'::regnamespace AND 'rowpost.' || quote_ident(p.proname) = p_object_name;
END
$rowpost$;
