CREATE OR REPLACE FUNCTION rowpost._is_operator() RETURNS boolean
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Returns whether the caller is a member of rowpost_operator, or has the rights of the owner of the schema rowpost.
Atomicity: reads only.
Locking:   none that lasts.
*/
-- the caller is the login, or the role of its last SET ROLE
SELECT pg_has_role(c.caller, n.nspowner, 'USAGE') OR EXISTS (
    -- only of a role that has rights in this database: with `roles: none` it may be there for other databases, or not at all
    SELECT FROM aclexplode(n.nspacl) AS a WHERE a.grantee = to_regrole('rowpost_operator') AND pg_has_role(c.caller, a.grantee, 'USAGE')
)
FROM pg_namespace AS n
CROSS JOIN (SELECT CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role')::name END AS caller) AS c
WHERE n.nspname = 'rowpost'
$rowpost$;
