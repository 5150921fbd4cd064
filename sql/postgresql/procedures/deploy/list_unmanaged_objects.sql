CREATE OR REPLACE FUNCTION rowpost.list_unmanaged_objects() RETURNS TABLE (object_kind text, object_name text)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Lists objects in the schema rowpost that no script of the journal made.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by name.
*/
BEGIN
    RETURN QUERY
    SELECT 'table', format('rowpost.%I', c.relname)
    FROM pg_class AS c
    WHERE c.relnamespace = 'rowpost'::regnamespace
      AND c.relkind IN ('r', 'v', 'm', 'p', 'f')
      AND NOT EXISTS (SELECT FROM rowpost.journal AS j WHERE j.object_kind = 'table' AND to_regclass(j.object_name) = c.oid)
    UNION ALL
    SELECT 'procedure', format('rowpost.%I', p.proname)
    FROM pg_proc AS p
    WHERE p.pronamespace = 'rowpost'::regnamespace
      AND p.proname <> '_readable_body'
      AND NOT EXISTS (SELECT FROM rowpost.journal AS j WHERE j.object_kind IN ('procedure', 'trigger') AND to_regproc(j.object_name) = p.oid)
    ORDER BY 2;
END
$rowpost$;
