CREATE OR REPLACE FUNCTION rowpost._may_receive(p_queue_key text) RETURNS boolean
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Returns whether the caller may receive from a queue, as its own login or as an operator.
Atomicity: reads only.
Locking:   none that lasts.
Only operators may do so for a queue that is not registered.
*/
-- the caller is the login, or the role of its last SET ROLE
SELECT EXISTS (
    SELECT
    FROM pg_proc AS p
    WHERE p.proname = ('receive_messages:' || p_queue_key)::name
      AND p.pronamespace = 'rowpost'::regnamespace
      AND has_function_privilege(
          CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role')::name END, p.oid, 'EXECUTE')
) OR rowpost._is_operator()
$rowpost$;
