CREATE OR REPLACE FUNCTION rowpost.get_definition(
    p_object_name text -- quoted, with its schema
) RETURNS TABLE (definition text)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Reads the text of a procedure in the server, for a review; no row if it does not exist or the caller may not see it.
Atomicity: reads only.
Locking:   none that lasts.
*/
BEGIN
    RETURN QUERY
    SELECT pg_get_functiondef(p.oid)
    FROM pg_proc AS p
    -- before PostgreSQL 16, to_regproc raises an error if the text is not a name
    WHERE p.pronamespace = 'rowpost'::regnamespace AND 'rowpost.' || quote_ident(p.proname) = p_object_name;
END
$rowpost$;
