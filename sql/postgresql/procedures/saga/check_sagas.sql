CREATE OR REPLACE FUNCTION rowpost.check_sagas() RETURNS TABLE (saga_name text, finding text, detail text, remedy text)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Finds the tables of sagas that their procedures cannot use, and returns the command that repairs each.
Atomicity: reads only the catalog.
Locking:   none that lasts.
Order:     by saga.
*/
BEGIN
    RETURN QUERY
    WITH sagas AS (
        SELECT
            s.saga_name,
            format('%I.%I', s.schema_name, s.table_name) AS table_name,
            to_regclass(format('%I.%I', s.schema_name, s.table_name)) AS table_id
        FROM rowpost.saga AS s
    ),
    findings AS (
        SELECT
            s.saga_name,
            'table_missing' AS finding,
            format('The table %s does not exist.', s.table_name) AS detail,
            'rowpost apply' AS remedy
        FROM sagas AS s
        WHERE s.table_id IS NULL
        UNION ALL
        SELECT
            s.saga_name,
            'owner_differs',
            format('%s owns the table, and %s, the owner of the schema rowpost, has no rights on it: its procedures are refused.',
                   c.relowner::regrole, n.nspowner::regrole),
            format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %s;', s.table_name, n.nspowner::regrole)
        FROM sagas AS s
        JOIN pg_class AS c ON c.oid = s.table_id
        JOIN pg_namespace AS n ON n.nspname = 'rowpost'
        WHERE NOT has_table_privilege(n.nspowner, s.table_id, 'INSERT')
           OR NOT has_table_privilege(n.nspowner, s.table_id, 'SELECT')
           OR NOT has_table_privilege(n.nspowner, s.table_id, 'UPDATE')
           OR NOT has_table_privilege(n.nspowner, s.table_id, 'DELETE')
    )
    SELECT f.saga_name, f.finding, f.detail, f.remedy
    FROM findings AS f
    ORDER BY f.saga_name, f.finding;
END
$rowpost$;
